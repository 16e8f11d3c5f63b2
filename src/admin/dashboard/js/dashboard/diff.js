// The difference of two texts by lines: a longest common subsequence. The server masks the secrets of
// both, and masks equal each other.

/** More lines than these, after equal ends are taken off, are not compared: the table would be large. */
const MOST_LINES = 2_000;
/** Equal lines that are shown around a change. */
const CONTEXT = 3;

/** Lines with their sign (`+`, `-` or a space) around changes; null if the texts are too long. */
export function compareLines(left, right) {
  const [from, to] = [linesOf(left), linesOf(right)];
  const head = common(from, to);
  const tail = common(from.slice(head).reverse(), to.slice(head).reverse());
  const [a, b] = [from.slice(head, from.length - tail), to.slice(head, to.length - tail)];
  if (a.length > MOST_LINES || b.length > MOST_LINES) {
    return null;
  }
  const same = (line) => ({ sign: " ", line });
  const all = [...from.slice(0, head).map(same), ...changes(a, b), ...from.slice(from.length - tail).map(same)];
  return withGaps(all);
}

function linesOf(text) {
  return text.trimEnd().split("\n");
}

/** Lines near changes; a line with an ellipsis stands for those that are left out between them. */
function withGaps(all) {
  const shown = [];
  let last = -1;
  all.forEach((line, place) => {
    if (isNearChange(all, place)) {
      if (shown.length && place > last + 1) {
        shown.push({ sign: " ", line: "⋯" });
      }
      shown.push(line);
      last = place;
    }
  });
  return shown;
}

function common(left, right) {
  let length = 0;
  while (length < Math.min(left.length, right.length) && left[length] === right[length]) {
    length += 1;
  }
  return length;
}

function changes(a, b) {
  const lengths = table(a, b);
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: " ", line: a[i] });
      [i, j] = [i + 1, j + 1];
    } else if (j >= b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      lines.push({ sign: "-", line: a[i] });
      i += 1;
    } else {
      lines.push({ sign: "+", line: b[j] });
      j += 1;
    }
  }
  return lines;
}

/** The length of the longest common subsequence of what is left of both. */
function table(a, b) {
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  return lengths;
}

function isNearChange(lines, place) {
  const near = lines.slice(Math.max(0, place - CONTEXT), place + CONTEXT + 1);
  return near.some(({ sign }) => sign !== " ");
}
