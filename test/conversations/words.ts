/** A word of a script line: bare, or a JSON string in quotes. `null` and `\x…` mean something only when bare. */
export interface Word {
  readonly text: string;
  readonly quoted: boolean;
}

/** Reads a script line word by word. */
export class Words {
  #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /** @returns undefined at the end */
  next(): Word | undefined {
    this.#text = this.#text.trimStart();
    const word = /^("(?:[^"\\]|\\.)*"|[^\s\]]+)/.exec(this.#text)?.[0];
    if (word === undefined) return undefined;
    this.#text = this.#text.slice(word.length);
    return word.startsWith('"') ? { text: JSON.parse(word) as string, quoted: true } : { text: word, quoted: false };
  }

  /** The next word's text, or what stands for it where the line ends. */
  text(otherwise = ''): string {
    return this.next()?.text ?? otherwise;
  }

  /** `[a b c]`, where the line goes on with one. */
  list(): Word[] {
    this.#text = this.#text.trimStart();
    if (!this.#text.startsWith('[')) return [];
    this.#text = this.#text.slice(1);
    const words = this.all();
    if (!this.#text.trimStart().startsWith(']')) throw new Error('a list is not closed');
    this.#text = this.#text.trimStart().slice(1);
    return words;
  }

  /** Words up to the end of the list or of the line. */
  all(): Word[] {
    const words: Word[] = [];
    for (let word = this.next(); word; word = this.next()) words.push(word);
    return words;
  }

  /** What follows, as it stands. */
  rest(): string {
    return this.#text.trimStart();
  }
}

/** `key=value` words, whole words quoted where they contain spaces: `timezone=UTC "options=-c a=b"`. */
export function settings(words: readonly Word[]): Map<string, string> {
  return new Map(
    words.map(({ text }) => {
      const at = text.indexOf('=');
      if (at < 0) throw new Error(`not of the form key=value: ${text}`);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

/** The bytes a word stands for: text, `\x00ff`, or null. */
export function bytesOf({ text, quoted }: Word): Buffer | null {
  if (!quoted && text === 'null') return null;
  return !quoted && text.startsWith('\\x') ? Buffer.from(text.slice(2), 'hex') : Buffer.from(text);
}

/** The inverse of `bytesOf`: how a value is written in a script. */
export function wordOf(bytes: Buffer | null): string {
  if (bytes === null) return 'null';
  const text = bytes.toString('utf8');
  if (/[^\P{Cc}\t\n\r]|\ufffd/u.test(text)) return `\\x${bytes.toString('hex')}`;
  return /^[^\s"\\[\]{}]+$/.test(text) && text !== 'null' ? text : JSON.stringify(text);
}
