/** A place in a text, both from 1; the column in characters. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

const LINES_BEFORE = 2;
const LINES_AFTER = 1;
/** Of a longer line the part around the place is shown. */
const WIDTH_CHARACTERS = 120;

/** The lines around the place with their numbers, and a mark below it. */
export function excerptOf(sql: string, { line, column }: Place): string {
  const lines = sql.split('\n');
  const first = Math.max(0, line - 1 - LINES_BEFORE);
  const shown = lines.slice(first, line + LINES_AFTER);
  const digits = String(line + LINES_AFTER).length;
  const start = Math.max(0, column - WIDTH_CHARACTERS / 2);
  return shown
    .flatMap((text, index) => {
      const number = first + index + 1;
      const part = [...text].slice(start, start + WIDTH_CHARACTERS).join('');
      const numbered = `${number === line ? '>' : ' '} ${String(number).padStart(digits)} │ ${part}`;
      return number === line ? [numbered, `  ${' '.repeat(digits)} │ ${indentOf(part, column - 1 - start)}^`] : [numbered];
    })
    .join('\n');
}

/** As wide as the characters before the place. */
function indentOf(text: string, characters: number): string {
  return [...text]
    .slice(0, characters)
    .map((character) => (character === '\t' ? '\t' : ' '))
    .join('')
    .padEnd(characters);
}
