import { endOfValue } from '../../api/raw-json.ts';

/** JSON in lines with indents: only white space changes. A text that is no JSON stays as it is. */
export function indentJson(json: string): string {
  return isWellFormed(json) ? inLines(json) : json;
}

function isWellFormed(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}

function inLines(json: string): string {
  let depth = 0;
  const parts: string[] = [];
  for (let at = 0; at < json.length; at += 1) {
    const character = json.charAt(at);
    if (character === '"') {
      const end = endOfValue(json, at);
      parts.push(json.slice(at, end));
      at = end - 1;
    } else if (character === '{' || character === '[') {
      const next = skipSpace(json, at + 1);
      const isEmpty = json.charAt(next) === (character === '{' ? '}' : ']');
      if (isEmpty) at = next;
      else depth += 1;
      parts.push(isEmpty ? character + json.charAt(next) : character + newLine(depth));
    } else if (character === '}' || character === ']') {
      depth -= 1;
      parts.push(newLine(depth), character);
    } else if (character === ',') parts.push(character, newLine(depth));
    else if (character === ':') parts.push(': ');
    else if (!/\s/.test(character)) parts.push(character);
  }
  return parts.join('');
}

function skipSpace(json: string, at: number): number {
  let next = at;
  while (/\s/.test(json.charAt(next))) next += 1;
  return next;
}

function newLine(depth: number): string {
  return `\n${'  '.repeat(Math.max(0, depth))}`;
}
