import { type FrameScanner, HEADER_BYTES } from '../src/protocol/framing.ts';
import { decodeFrontendMessage } from '../src/protocol/frontend.ts';
import { replaceOutsideLiterals } from '../src/syntax/redaction.ts';
import type { LexerOptions } from '../src/syntax/scanner.ts';
import { leadingKeywords } from '../src/syntax/statements.ts';

/**
 * A session keeps one process id, which Postern has made, while its backends change. SQL that uses process ids in the ways
 * that clients do is translated before it is sent.
 */
export interface ProcessIds {
  /** The id that this session's client knows. */
  readonly own: number;
  /** The backend that a session has at the moment. @returns undefined for an id that is no session's, 0 for one at rest */
  backendOf(processId: number): number | undefined;
  /** Cancels or ends a session of the same organization. @returns resolves when the signal has arrived; undefined where nobody has to wait for that */
  signal(processId: number, signal: Signal): Promise<void> | undefined;
  /** The session with this id now works on this backend. */
  moved(backend: number): void;
  /** The id of the session whose notification this backend sent. */
  userOf(backend: number): number | undefined;
}

type Signal = 'cancel' | 'terminate';

/** A signal whose target is a parameter: `pg_cancel_backend($1)`. */
export interface ParameterSignal {
  /** From 1. */
  readonly parameter: number;
  readonly signal: Signal;
}

/** A signal to a session of the same organization. */
export interface DueSignal {
  readonly processId: number;
  readonly signal: Signal;
}

interface Translated {
  readonly text: string;
  /** The signals that are sent with each Bind. */
  readonly signals: readonly ParameterSignal[];
  /** The signals that the text itself asks for. */
  readonly due: readonly DueSignal[];
}

const OWN_ID = /\b(?:pg_catalog\s*\.\s*)?pg_backend_pid\s*\(\s*\)/gi;
/** In parentheses, so that `split` keeps it. */
const SIGNAL_OF_OWN = /(\bpg_(?:cancel|terminate)_backend\s*\(\s*pg_backend_pid\s*\(\s*\)\s*\))/i;
const TIMEOUT = String.raw`(?:,\s*\d+\s*)?`;
const CALL = String.raw`\b(?:pg_catalog\s*\.\s*)?(pg_(cancel|terminate)_backend)\s*\(\s*`;
const SIGNAL = new RegExp(String.raw`${CALL}'?(\d{8,10})'?\s*(?:::\s*\w+\s*)?${TIMEOUT}\)`, 'gi');
const SIGNAL_OF_PARAMETER = new RegExp(String.raw`${CALL}\$(\d{1,5})\s*(?:::\s*\w+\s*)?${TIMEOUT}\)`, 'gi');
/** A number that may be a session's id, next to the word. */
const COMPARED = /\b(pid\s*=\s*)'?(\d{8,10})'?/gi;

/**
 * Translates process ids between those of Postern and those of the server. Postern sends a signal to a session itself, and
 * puts the function's result in the place of the call. A session's signal to itself is left to the server. Definitions,
 * strings, function bodies and comments are not translated, because they may outlive the session.
 * @param options how the server reads the text
 */
export function translateProcessIds(text: string, ids: ProcessIds, options?: LexerOptions): Translated {
  const signals: ParameterSignal[] = [];
  const due: DueSignal[] = [];
  if (DEFINITIONS.has(leadingKeywords(text, 1)[0] ?? '')) return { text, signals, due };
  const besideOthers = LISTED.test(text);
  const change = (code: string) =>
    code
      .split(SIGNAL_OF_OWN)
      .map((part) => translatePart(part, ids, signals, due, besideOthers))
      .join('');
  return { text: replaceOutsideLiterals(text, change, (token) => PROCESS_ID.test(token), options), signals, due };
}

const DEFINITIONS = new Set(['CREATE', 'ALTER']);
/** This view shows the server's process ids, so `pid <> pg_backend_pid()` must compare with the server's. */
const LISTED = /\bpg_stat_activity\b/i;
const PROCESS_ID = /^'\d{8,10}'$/;

function translatePart(code: string, ids: ProcessIds, signals: ParameterSignal[], due: DueSignal[], besideOthers: boolean): string {
  if (SIGNAL_OF_OWN.test(code)) return code;
  return code
    .replace(SIGNAL, (call, name: string, kind: string, digits: string) => {
      const processId = Number(digits);
      if (ids.backendOf(processId) === undefined) return call;
      due.push({ processId, signal: signalOf(kind) });
      return `(SELECT true AS ${name})`;
    })
    .replace(SIGNAL_OF_PARAMETER, (_, name: string, kind: string, digits: string) => {
      signals.push({ parameter: Number(digits), signal: signalOf(kind) });
      return `(SELECT $${digits}::int4 IS NOT NULL AS ${name})`;
    })
    .replace(COMPARED, (comparison, words: string, digits: string) => {
      const backend = ids.backendOf(Number(digits));
      return backend === undefined ? comparison : `${words}${backend}`;
    })
    .replace(OWN_ID, (call) => (besideOthers ? call : `(SELECT ${ids.own} AS pg_backend_pid)`));
}

function signalOf(kind: string): Signal {
  return kind.toLowerCase() === 'cancel' ? 'cancel' : 'terminate';
}

/** The process id in a Bind's parameter, in text or as int4 or int8. */
function processIdOf(value: Buffer | null | undefined, format: number): number | undefined {
  if (value == null) return undefined;
  if (format === 0) return Number(value.toString('latin1'));
  if (value.length === 4) return value.readInt32BE(0);
  return value.length === 8 ? Number(value.readBigInt64BE(0)) : undefined;
}

/** The signals of a Bind whose statement calls `pg_cancel_backend($1)`. */
export function parameterSignals(
  signals: readonly ParameterSignal[],
  { type, buffer, start, end, last }: FrameScanner,
): readonly DueSignal[] {
  if (!last) return NO_SIGNALS;
  const bind = decodeFrontendMessage(type, buffer.subarray(start + HEADER_BYTES, end));
  if (bind.name !== 'Bind') return NO_SIGNALS;
  const due: DueSignal[] = [];
  for (const { parameter, signal } of signals) {
    const formats = bind.parameterFormats;
    const processId = processIdOf(bind.parameters[parameter - 1], formats[formats.length === 1 ? 0 : parameter - 1] ?? 0);
    if (processId !== undefined) due.push({ processId, signal });
  }
  return due;
}

export const NO_SIGNALS: readonly never[] = [];
