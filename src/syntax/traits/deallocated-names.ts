import { Code, lowerCase } from '../tokens/characters.ts';
import { Lexer, type LexerOptions, Token } from '../tokens/scanner.ts';

/** The rest of a longer text is not read, because that would block the event loop. */
const TOKENS_MAX = 20_000;

/** The names in the `DEALLOCATE name` statements of a text, in order, and folded as PostgreSQL folds them. */
export function deallocatedNames(text: string, options?: LexerOptions): string[] {
  const names: string[] = [];
  const reader = new StatementReader();
  const lexer = new Lexer(text, options);
  for (let read = 0; read < TOKENS_MAX && lexer.next() !== Token.End; read += 1) {
    const name = reader.read(lexer);
    if (name !== undefined) names.push(name);
  }
  // PREPARE is a name itself where none follows it.
  if (reader.awaits === 'name or end') names.push('prepare');
  return names;
}

/** Reads the tokens of one statement after the other, up to the name in a DEALLOCATE. */
class StatementReader {
  awaits: 'statement' | 'name or prepare' | 'name or end' | 'end' = 'statement';

  /** @returns the name that ends with this token */
  read({ kind, text, start, end, close }: Lexer): string | undefined {
    const { awaits } = this;
    if (kind === Token.Punctuation && text.charCodeAt(start) === Code.Semicolon) {
      this.awaits = 'statement';
      return awaits === 'name or end' ? 'prepare' : undefined;
    }
    if (awaits === 'end') return undefined;
    const word = kind === Token.Word ? lowerCase(text.slice(start, end)) : undefined;
    if (awaits === 'statement') this.awaits = word === 'deallocate' ? 'name or prepare' : 'end';
    else this.awaits = word === 'prepare' && awaits === 'name or prepare' ? 'name or end' : 'end';
    if (awaits === 'statement' || this.awaits === 'name or end' || word === 'all') return undefined;
    return kind === Token.QuotedIdentifier ? text.slice(start + 1, close - 1).replaceAll('""', '"') : word;
  }
}
