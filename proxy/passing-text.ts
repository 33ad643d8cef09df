import { Slices } from '../src/turn.ts';
import { PLAIN, type TextTraits, traitsOf } from './statement-text.ts';

/** What has to be seen together: the longest word that tells something, with what may stand around it. */
const OVERLAP = 128;
const PIECE_BYTES = 65_536;

/** A text too long to be looked at as a whole before it is sent: what else it says is found as it goes by. */
export class PassingText {
  #end: string;

  /** @param beginning what has been looked at */
  constructor(beginning = '') {
    this.#end = beginning.slice(-OVERLAP);
  }

  /** What the text's next bytes say, piece by piece. */
  *say(buffer: Buffer, start: number, end: number): Iterable<TextTraits> {
    for (let at = start; at < end; at += PIECE_BYTES) {
      const text = this.#end + buffer.toString('latin1', at, Math.min(end, at + PIECE_BYTES));
      this.#end = text.slice(-OVERLAP);
      const traits = traitsOf(text);
      if (traits !== PLAIN) yield traits;
    }
  }
}

/** What a large text says, read a bit at a time. */
export async function traitsInSlices(text: Buffer): Promise<readonly TextTraits[]> {
  const found: TextTraits[] = [];
  const slices = new Slices();
  const passing = new PassingText();
  for (let at = 0; at < text.length; at += PIECE_BYTES) {
    found.push(...passing.say(text, at, Math.min(text.length, at + PIECE_BYTES)));
    await slices.giveWay();
  }
  return found;
}
