// Plays recorded histories (stdin, JSON) on the JavaScript ledger; prints the first step that differs.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";

const { Ledger } = await import(process.env.MOORAGE_JS);

const short = (events) => events.map(({ id, seq, type, replayed }) => [id, seq, type, replayed]);
const place = (at) => at && [at.id, at.seq, at.epoch];

function play(ledger, { op, args }) {
  if (op !== "rebuilt") {
    const told = ledger[op](...args);
    return op === "giveUp" ? { told: short(told ?? []), again: told === null } : { told: told ? short(told) : null };
  }
  const [rebuilt, waiting] = ledger.rebuilt(...args);
  return { told: short(rebuilt?.fresh ?? []), missed: rebuilt && rebuilt.missed, waiting: short(waiting) };
}

for (const [number, steps] of JSON.parse(readFileSync(0, "utf8")).entries()) {
  const ledger = new Ledger();
  for (const [index, step] of steps.entries()) {
    const did = play(ledger, step);
    const is = { ...did, checkpoint: place(ledger.checkpoint), hole: ledger.hole, statistics: { ...ledger.statistics } };
    const { op, args, ...should } = step;
    if (!isDeepStrictEqual(is, should)) {
      console.log(JSON.stringify({ number, index, op, args, is, should }, null, 1));
      process.exit(1);
    }
  }
}
