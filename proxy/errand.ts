import { Pace, Tempo } from '../src/backend/pace.ts';
import type { ServerStatement } from '../src/backend/prepared-statements.ts';
import { stringEnd } from '../src/protocol/body.ts';
import { HEADER_BYTES } from '../src/protocol/frame.ts';
import { FrontendType } from '../src/protocol/frontend.ts';
import type { ClientStatements } from './client-statements.ts';
import type { RecentParses } from './recent-parses.ts';
import { PLAIN, traitsOf } from './statement-text.ts';

/** One whole request that only runs something, and leaves nothing behind in the session that runs it. */
export interface Errand {
  /** How long what it runs takes. */
  readonly pace: Pace;
  /** What it runs, unless that is in a Query. */
  readonly server: ServerStatement | undefined;
}

/** What is known where a request comes from. */
export interface ErrandContext {
  readonly statements: ClientStatements;
  readonly recent: RecentParses;
  readonly registry: { readonly generation: number };
  readonly paces: Paces;
  /** Settings that texts depend on. */
  readonly settings: string | undefined;
}

const MAX_ERRAND_BYTES = 8_192;

/** @returns what a chunk from a client asks for, where that is an errand and nothing else, and is known to be a short one */
export function shortErrand(chunk: Buffer, context: ErrandContext): Errand | undefined {
  if (chunk.length > MAX_ERRAND_BYTES) return undefined;
  const errand = chunk[0] === FrontendType.Query ? queryErrand(chunk, context.paces) : extendedErrand(chunk, context);
  return errand?.pace.isShort === true ? errand : undefined;
}

function queryErrand(chunk: Buffer, paces: Paces): Errand | undefined {
  if (messageEnd(chunk, 0) !== chunk.length) return undefined;
  const pace = paces.ofText(queryText(chunk));
  return pace === undefined ? undefined : { pace, server: undefined };
}

/** The text of a whole Query message. */
export function queryText(message: Buffer): string {
  return message.toString('latin1', HEADER_BYTES, message.length - 1);
}

/** `[Parse] Bind [Describe] Execute Sync`, with the unnamed portal. */
function extendedErrand(chunk: Buffer, { statements, recent, registry, paces, settings }: ErrandContext): Errand | undefined {
  let at = 0;
  let server: ServerStatement | undefined;
  if (chunk[at] === FrontendType.Parse) {
    const end = messageEnd(chunk, at);
    server = recent.find({ buffer: chunk, start: at, end }, settings, registry.generation)?.server;
    if (server === undefined || chunk[end + HEADER_BYTES + 1] !== 0) return undefined;
    at = end;
  }
  if (chunk[at] !== FrontendType.Bind || chunk[at + HEADER_BYTES] !== 0) return undefined;
  server ??= boundStatement(chunk, at + HEADER_BYTES + 1, statements);
  at = messageEnd(chunk, at);
  if (chunk[at] === FrontendType.Describe && chunk[at + HEADER_BYTES] === PORTAL) at = messageEnd(chunk, at);
  if (server === undefined || !isExecuteAll(chunk, at)) return undefined;
  at = messageEnd(chunk, at);
  if (chunk[at] !== FrontendType.Sync || messageEnd(chunk, at) !== chunk.length) return undefined;
  const pace = paces.ofStatement(server);
  return pace === undefined ? undefined : { pace, server };
}

function boundStatement(chunk: Buffer, start: number, statements: ClientStatements): ServerStatement | undefined {
  const end = stringEnd(chunk, start, chunk.length);
  return end <= start ? undefined : statements.get(chunk.toString('latin1', start, end))?.server;
}

/** An Execute of the unnamed portal for all rows. */
function isExecuteAll(chunk: Buffer, at: number): boolean {
  const body = at + HEADER_BYTES;
  if (chunk[at] !== FrontendType.Execute || messageEnd(chunk, at) !== body + 5 || body + 5 > chunk.length) return false;
  return chunk.readUInt32BE(body + 1) === 0;
}

/** @returns where the message that begins at `at` ends; beyond the chunk, where it is not whole or none at all */
function messageEnd(chunk: Buffer, at: number): number {
  const word = at + HEADER_BYTES <= chunk.length ? chunk.readUInt32BE(at + 1) : 0;
  return word < 4 ? Number.POSITIVE_INFINITY : at + 1 + word;
}

/** What a Describe is about. */
const PORTAL = 0x50;

const PACES_MAX = 1_000;
const TEXT_MAX_CHARACTERS = 2_048;

/** How long the statements of an organization take, of those that may share a session's pipeline with others. */
export class Paces {
  readonly tempo = new Tempo();
  readonly #ofTexts = new Map<string, Pace | null>();
  readonly #recent: ({ readonly text: string; readonly pace: Pace | undefined } | undefined)[] = new Array(RECENT).fill(undefined);

  /** @returns undefined for what may not share */
  ofStatement(statement: ServerStatement): Pace | undefined {
    if (statement.pace === undefined) {
      const { definition } = statement;
      const text = definition.toString('latin1', 0, stringEnd(definition, 0, definition.length));
      statement.pace = mayShare(text) ? new Pace() : null;
    }
    return statement.pace ?? undefined;
  }

  /** Texts that differ in their literals only are one. @returns undefined for what may not share */
  ofText(text: string): Pace | undefined {
    if (text.length > TEXT_MAX_CHARACTERS) return undefined;
    // One request is looked up several times on its way.
    const slot = slotOf(text);
    const recent = this.#recent[slot];
    if (recent?.text === text) return recent.pace;
    const pace = this.#lookUp(text);
    this.#recent[slot] = { text, pace };
    return pace;
  }

  #lookUp(text: string): Pace | undefined {
    if (text.includes('\\') || traitsOf(text) !== PLAIN) return undefined;
    const key = text.replace(LITERAL, '$1?');
    let pace = this.#ofTexts.get(key);
    if (pace === undefined) {
      pace = mayShare(text) ? new Pace() : null;
      const [oldest] = this.#ofTexts.keys();
      if (this.#ofTexts.size >= PACES_MAX && oldest !== undefined) this.#ofTexts.delete(oldest);
      this.#ofTexts.set(key, pace);
    }
    return pace ?? undefined;
  }
}

/** Texts that differ in their literals differ at the end more often than at the beginning. */
function slotOf(text: string): number {
  let slot = text.length;
  for (let i = Math.max(0, text.length - SLOT_CHARACTERS); i < text.length; i += 1) slot = (31 * slot + text.charCodeAt(i)) % RECENT;
  return slot;
}

const RECENT = 128;
const SLOT_CHARACTERS = 8;

/** Or a name in quotes, in which no literal begins: texts that look the same without their literals are to be of the same kind. */
const LITERAL = /("[^"]*")|'[^']*'|\b\d+\b/g;

const READ = /^\s*select\b/i;
const QUOTED = /'[^']*'|"[^"]*"/g;
/** What could begin another statement or lock rows, and what we could be mistaken in. */
const NOT_PLAIN = /\$|"\s*\(|--|\/\*|;\s*\S|\b(?:into|for\s+(?:no\s+key\s+)?(?:update|share)|for\s+key\s+share)\b/i;
const CALL = /([\w.\x80-\xff]+)\s*\(/g;
/** Words and functions that may stand before a parenthesis; none does anything but compute. */
const HARMLESS = new Set(
  `select from where and or not in exists any all some as on using by having over filter within values union except intersect when then
  else case join lateral array row cast between limit offset is distinct
  count sum min max avg coalesce nullif greatest least lower upper length char_length trim btrim ltrim rtrim substring substr position
  replace left right concat concat_ws abs ceil ceiling floor round trunc mod power sqrt now date_trunc extract date_part to_char age
  array_agg string_agg json_agg jsonb_agg json_build_object jsonb_build_object jsonb_build_array bool_and bool_or every row_number rank
  dense_rank lag lead first_value last_value unnest cardinality array_length jsonb_array_elements numeric decimal varchar char timestamp
  timestamptz time interval bit`.split(/\s+/),
);

/**
 * Whether a text only reads, as far as can be told: another client's request may already be behind it in the same session,
 * and it may have to be run twice. What is overlooked, in a view say, does what it would do in any pool of sessions.
 */
function mayShare(text: string): boolean {
  if (!READ.test(text) || text.includes('\\')) return false;
  const code = text.replace(QUOTED, '""').replace(PLACEHOLDER, '');
  if (NOT_PLAIN.test(code)) return false;
  for (const [, name = ''] of code.matchAll(CALL)) if (!HARMLESS.has(name.toLowerCase())) return false;
  return true;
}

/** `$1` of the extended protocol, rather than the beginning of a dollar-quoted text. */
const PLACEHOLDER = /\$\d+(?![\w$])/g;
