// Keys as people should see them: the same tables and rules as in src/visible.rs, which says what each
// table has. A test in a browser compares them.

const HIDDEN = [
  [0x0, 0x1f], [0x7f, 0xa0], [0xad, 0xad], [0x34f, 0x34f], [0x600, 0x605], [0x61c, 0x61c],
  [0x6dd, 0x6dd], [0x70f, 0x70f], [0x890, 0x891], [0x8e2, 0x8e2], [0x115f, 0x1160], [0x1680, 0x1680],
  [0x17b4, 0x17b5], [0x180b, 0x180f], [0x2000, 0x200f], [0x2028, 0x202f], [0x205f, 0x206f], [0x2800, 0x2800],
  [0x3000, 0x3000], [0x3164, 0x3164], [0xd800, 0xf8ff], [0xfe00, 0xfe0f], [0xfeff, 0xfeff], [0xffa0, 0xffa0],
  [0xfff0, 0xfffc], [0xfffe, 0xffff], [0x110bd, 0x110bd], [0x110cd, 0x110cd], [0x13430, 0x1343f], [0x1bca0, 0x1bca3],
  [0x1d159, 0x1d159], [0x1d173, 0x1d17a], [0xe0000, 0x10ffff],
];
const LOOK_ALIKES = [
  [0xaa, 0xaa], [0xba, 0xba], [0x131, 0x131], [0x138, 0x138], [0x149, 0x149], [0x17f, 0x17f],
  [0x250, 0x34e], [0x350, 0x36f], [0x483, 0x489], [0x1ab0, 0x1aff], [0x1d00, 0x1dff], [0x2010, 0x2027],
  [0x2030, 0x205e], [0x20d0, 0x20ff], [0x2100, 0x218b], [0x2212, 0x2212], [0x2215, 0x2217], [0x2223, 0x2223],
  [0x2236, 0x2236], [0x2460, 0x24ff], [0x2c60, 0x2c7f], [0xa720, 0xa7ff], [0xab30, 0xab6f], [0xfe20, 0xfe2f],
  [0xff01, 0xff5e], [0x1d400, 0x1d7ff],
];
const BESIDE_ASCII = [
  [0xa1, 0xbf], [0xc0, 0x17e], [0x1a0, 0x1a1], [0x1af, 0x1b0], [0x218, 0x21b], [0x1e00, 0x1ef9],
  [0x2190, 0x2bff], [0x2e80, 0x318f], [0x31a0, 0x31ff], [0x3400, 0x9fff], [0xac00, 0xd7a3], [0xf900, 0xfaff],
  [0x1f000, 0x1faff], [0x20000, 0x3ffff],
];
const LIKE_LATIN = new Set("\u{430}\u{435}\u{43e}\u{440}\u{441}\u{443}\u{445}\u{456}\u{458}\u{455}\u{4bb}\u{501}\u{51b}\u{51d}\u{4cf}\u{475}\u{410}\u{412}\u{415}\u{405}\u{406}\u{408}\u{41a}\u{41c}\u{41d}\u{41e}\u{420}\u{421}\u{422}\u{423}\u{425}\u{50c}\u{51a}\u{51c}\u{391}\u{392}\u{395}\u{396}\u{397}\u{399}\u{39a}\u{39c}\u{39d}\u{39f}\u{3a1}\u{3a4}\u{3a5}\u{3a7}\u{3bf}\u{3bd}\u{585}\u{57d}\u{578}\u{570}");

function isIn(ranges, letter) {
  const code = letter.codePointAt(0);
  return ranges.some(([first, last]) => first <= code && code <= last);
}

/** A key with what is not as it looks escaped: `\u202e`. */
export function visible(key) {
  const letters = [...key];
  const marks = letters.map((letter, place) => isIn(HIDDEN, letter) || isIn(LOOK_ALIKES, letter) || isHiddenSpace(letters, place));
  for (const [from, to] of words(letters)) {
    const word = letters.slice(from, to);
    const isLatin = word.some((letter) => /[a-z]/i.test(letter));
    const isDisguised = word.filter((letter) => !/[0-9]/.test(letter)).every((letter) => LIKE_LATIN.has(letter));
    word.forEach((letter, place) => {
      marks[from + place] ||= letter > "\u007f" && (isDisguised || (isLatin && !isIn(BESIDE_ASCII, letter)));
    });
  }
  return letters.map((letter, place) => shown(letter, marks[place], marks[place + 1] || ["u", "\\"].includes(letters[place + 1]))).join("");
}

/** A space at an end, or after another. */
function isHiddenSpace(letters, place) {
  return letters[place] === " " && (place === 0 || place === letters.length - 1 || letters[place - 1] === " ");
}

/** The places of words, as pairs of begin and end. */
function words(letters) {
  const isOfWord = (letter) => /[0-9a-z]/i.test(letter) || letter.codePointAt(0) > 0xa0;
  const found = [];
  letters.forEach((letter, place) => {
    if (!isOfWord(letter)) {
      return;
    }
    if (found.at(-1)?.[1] === place) {
      found.at(-1)[1] = place + 1;
    } else {
      found.push([place, place + 1]);
    }
  });
  return found;
}

function shown(letter, isMarked, beginsEscape) {
  if (!isMarked) {
    return letter === "\\" && beginsEscape ? "\\\\" : letter;
  }
  const code = letter.codePointAt(0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
}
