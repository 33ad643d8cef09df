import { eachElement, endOfValue } from '../api/raw-json.ts';

/*
 * Values as the API sends them (`## Values` of http/README.md) become the text that PostgreSQL has for them, which it also reads.
 * Two things cannot be told from JSON: null of json and jsonb from NULL, and an array of json with several dimensions from one whose
 * elements are JSON arrays; it is taken for the latter.
 */

type Form = 'json' | 'number' | 'boolean' | 'time' | 'box' | 'other';

interface TypeForm {
  readonly form: Form;
  readonly isArray: boolean;
}

const FORMS: Readonly<Record<Exclude<Form, 'other'>, readonly string[]>> = {
  json: ['json', 'jsonb'],
  number: [
    ...['smallint', 'integer', 'bigint', 'numeric', 'real', 'double precision', 'money', 'oid'],
    ...['int2', 'int4', 'int8', 'float4', 'float8'],
  ],
  boolean: ['boolean', 'bool'],
  time: ['timestamp', 'timestamptz', 'timestamp with time zone', 'timestamp without time zone'],
  box: ['box'],
};

const FORM_OF = new Map(Object.entries(FORMS).flatMap(([form, names]) => names.map((name) => [name, form as Form])));
const known = new Map<string, TypeForm>();

function typeForm(type: string): TypeForm {
  const before = known.get(type);
  if (before !== undefined) return before;
  const isArray = type.endsWith('[]');
  // `numeric(10,2)`, `timestamp(3) with time zone`
  const name = (isArray ? type.slice(0, -2) : type).replace(/\(\d+(?:, ?-?\d+)?\)/, '');
  const found = { form: FORM_OF.get(name) ?? 'other', isArray };
  known.set(type, found);
  return found;
}

export function isNull(json: string): boolean {
  return json === 'null';
}

/** Whether values of this type are aligned to the right. */
export function isNumeric(type: string): boolean {
  const { form, isArray } = typeForm(type);
  return form === 'number' && !isArray;
}

export function isJson(type: string): boolean {
  const { form, isArray } = typeForm(type);
  return form === 'json' && !isArray;
}

/** What PostgreSQL's text form of the value is: to show it, to edit it, to copy it, and to send it back. NULL: undefined. */
export function textOf(json: string, type: string): string | undefined {
  return isNull(json) ? undefined : formatted(json, typeForm(type), Number.POSITIVE_INFINITY);
}

const PREVIEW_MAX = 300;
/** Characters of JSON that surely have more characters of text than a preview. */
const HEAD_MAX = 6 * (PREVIEW_MAX + 2);

/** One line of the value, for where there is little space; the rest of a long value is left out. */
export function previewOf(json: string, type: string): string {
  return lineOf(formatted(json, typeForm(type), PREVIEW_MAX));
}

/** Control characters, and those that change the direction of a text or cannot be seen. */
const UNSEEN = /[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu;

/** The beginning of a text in one line, with nothing in it that is not seen. */
export function lineOf(text: string): string {
  const line = text.slice(0, PREVIEW_MAX).replace(UNSEEN, visible);
  return text.length > PREVIEW_MAX ? `${line}…` : line;
}

function visible(character: string): string {
  if (character === '\n') return '↵';
  if (character === '\t') return '⇥';
  return `<U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}>`;
}

/** @param max how many characters are needed; there may be more */
function formatted(json: string, { form, isArray }: TypeForm, max: number): string {
  // A domain over an array type has a name of its own.
  const isLiteral = json.startsWith('[') && (isArray || form === 'other');
  return isLiteral ? arrayLiteral(json, form, max) : scalar(json, form, max);
}

function scalar(json: string, form: Form, max: number): string {
  if (form === 'json' || !json.startsWith('"')) return json;
  const text = stringOf(json, max);
  return form === 'time' ? timeOf(text) : text;
}

function stringOf(json: string, max: number): string {
  if (json.length <= HEAD_MAX || max === Number.POSITIVE_INFINITY) return JSON.parse(json);
  // The cut may be in an escape, which has six characters at most.
  for (let end = HEAD_MAX; end > HEAD_MAX - 6; end -= 1) {
    try {
      return JSON.parse(`${json.slice(0, end)}"`);
    } catch {
      // One character less.
    }
  }
  return JSON.parse(json);
}

const TIME = /^(.+)T([\d:]{8})(\.\d+)?(Z?)( BC)?$/;

/** `2025-01-31T09:30:00.120000Z` → `2025-01-31 09:30:00.12+00` */
function timeOf(text: string): string {
  const parts = TIME.exec(text);
  if (parts === null) return text;
  const [, day, time, fraction = '', zone, era = ''] = parts;
  return `${day} ${time}${fraction.replace(/\.?0+$/, '')}${zone === '' ? '' : '+00'}${era}`;
}

/** @see https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO */
function arrayLiteral(json: string, form: Form, max: number): string {
  let literal = '{';
  for (const [start, end] of eachElement(json)) {
    if (literal.length > 1) literal += form === 'box' ? ';' : ',';
    literal += elementOf(json.slice(start, end), form, max);
    if (literal.length > max) break;
  }
  return `${literal}}`;
}

function elementOf(json: string, form: Form, max: number): string {
  if (isNull(json)) return 'NULL';
  if (form === 'boolean') return json.charAt(0);
  if (json.startsWith('[') && form !== 'json') return arrayLiteral(json, form, max);
  const text = scalar(json, form, max);
  return text === '' || /^null$/i.test(text) || NEEDS_QUOTES[form === 'box' ? 'box' : 'other'].test(text)
    ? `"${text.replace(/["\\]/g, '\\$&')}"`
    : text;
}

const NEEDS_QUOTES = { other: /[\t-\r "\\{},]/, box: /[\t-\r "\\{};]/ };

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
