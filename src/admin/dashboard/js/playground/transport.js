// Time on the page.

/** Frames further apart than this, as of a page in the background, pass only so much time. */
const LONGEST_FRAME = 250;

/** Lets time pass while the model plays. */
export function runTime(model) {
  let last = null;
  const frame = (now) => {
    if (!model.isPlaying) {
      last = null;
      return;
    }
    model.pass(Math.min(LONGEST_FRAME, Math.max(0, now - last)) * model.speed);
    last = now;
    requestAnimationFrame(frame);
  };
  model.listen(() => {
    if (model.isPlaying && last === null) {
      last = performance.now();
      requestAnimationFrame(frame);
    }
  });
}
