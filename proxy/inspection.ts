import { recordText } from '../src/catalog/audit/records.ts';
import { ServiceError } from '../src/errors.ts';
import { type FrameScanner, HEADER_BYTES, stringEnd } from '../src/protocol/framing.ts';
import { FrontendType, message } from '../src/protocol/frontend.ts';
import { LARGE_SQL_BYTES } from '../src/rewriting/rewrite-sql.ts';
import { TimeSlices } from '../src/runtime/event-loop.ts';
import { type Edits, NO_EDITS } from '../src/syntax/edits.ts';
import { asksByParameter, asksForPublic, readsSearchPath } from '../src/syntax/names.ts';
import { doubleBytesOf, type LexerOptions } from '../src/syntax/scanner.ts';
import {
  ANY_OBJECT_CHANGE,
  deallocatedNames,
  NO_TRAITS,
  objectChanges,
  type SessionTraits,
  sessionTraitsOf,
  traitsOfBeginning,
} from '../src/syntax/session-traits.ts';
import {
  type AuditedText,
  type Batch,
  DdlAudit,
  type LargeText,
  MAX_REWRITTEN_BYTES,
  PIECE_BYTES,
  piecesOf,
  type RewrittenText,
  StreamedAuditedText,
  StreamedText,
  StreamedTraits,
} from './audited-text.ts';
import type { Pins } from './pins.ts';
import {
  asksBlockers,
  type Blockers,
  type DueSignal,
  NO_SIGNALS,
  type ParameterSignal,
  parameterSignals,
  translateProcessIds,
} from './process-ids.ts';
import { type ShownRows, shownRows } from './reply-rewriting.ts';
import type { SessionServices } from './session-services.ts';

/** What a text says, and what is sent in its place. */
export interface Inspected {
  readonly traits: SessionTraits;
  /** Its record for the audit log, if it may change objects or roles. */
  readonly audited: AuditedText | undefined;
  /** As Latin-1. */
  readonly sent: string;
  /** The replacements made in it. */
  readonly edits: Edits;
  /** The signals that it asks for. */
  readonly due: readonly DueSignal[];
  /** Those that it asks for with each Bind. */
  readonly signals: readonly ParameterSignal[];
  /** The names of statements that it deallocates. */
  readonly deallocates: readonly string[];
  /** It has been read so that a backslash in a string may escape. */
  readonly hasEscapes: boolean;
  /** It asks by whom sessions are blocked; see {@link Inspection.awaitsBlockers}. */
  readonly asksBlockers: boolean;
}

const NO_NAMES: readonly string[] = [];
const NO_PIECES: readonly SessionTraits[] = [];

/** Names of channels in rows have the organization's prefix, which is a secret. */
const LISTS_CHANNELS = /pg_listening_channels/i;

/**
 * Reads a text, and rewrites it for the placement. Nothing is noted anywhere.
 * @param text whole, as Latin-1
 * @param options how the server reads it; undefined: as it does by default
 * @param rewritten what is known of it, if it has been rewritten already
 * @param blockers who waits for whom, if that is known
 */
function inspect(
  text: string,
  { rewriter, processIds }: Pick<SessionServices, 'rewriter' | 'processIds'>,
  options: LexerOptions | undefined,
  rewritten: RewrittenText | undefined,
  blockers: Blockers | undefined,
): Inspected {
  const audited = rewritten === undefined ? auditedText(text) : rewritten.audited;
  let traits = sessionTraitsOf(text, options);
  let sent = text;
  let edits = NO_EDITS;
  if (rewriter !== undefined && rewritten === undefined) {
    const result = rewriter.rewrite(Buffer.from(text, 'latin1'), options);
    edits = result.edits;
    if (edits.length > 0) {
      sent = result.sql.toString('latin1');
      if (asksForPublic(text, options)) traits = { ...traits, shows: 'names' };
      else if (asksByParameter(text, options)) traits = { ...traits, asksByParameter: true };
    }
    if (LISTS_CHANNELS.test(text)) traits = { ...traits, shows: 'names' };
    if (readsSearchPath(text, options)) traits = { ...traits, shows: 'search_path' };
  }
  const translated = traits.mentionsPids ? translateProcessIds(sent, processIds, options, blockers) : undefined;
  if (traits.listsSessions && translated?.listsSessions !== true) traits = { ...traits, listsSessions: false };
  return {
    traits,
    audited,
    sent: translated === undefined ? sent : translated.text,
    edits,
    due: translated === undefined ? NO_SIGNALS : translated.due,
    signals: translated === undefined ? NO_SIGNALS : translated.signals,
    deallocates: traits.deallocates ? deallocatedNames(text, options) : NO_NAMES,
    hasEscapes: options?.standardConformingStrings === false && text.includes('\\'),
    asksBlockers: translated !== undefined && asksBlockers(text),
  };
}

/** @param text whole, as Latin-1 @returns undefined if it changes neither objects nor roles */
export function auditedText(text: string): AuditedText | undefined {
  if (!ANY_OBJECT_CHANGE.test(text)) return undefined;
  const changes = objectChanges(text);
  return changes && { ...changes, recorded: recordText(Buffer.from(text, 'latin1').toString('utf8')) };
}

/** What inspection needs of its session. */
export interface InspectedSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly link: { holdBackUntil(event: Promise<unknown>): Promise<void> };
  /** How the server reads strings in the next text. */
  readonly standardConformingStrings: boolean;
  /** The encoding of the client's texts. */
  readonly clientEncoding: string | undefined;
  /** The request has traits, so its latency is not measured. */
  timed: unknown;
  readonly received: { defaultsChange(settings: readonly string[]): void };
  continueInput(): void;
}

/**
 * Takes the texts of a client's Query and Parse messages. What they say is noted when they are sent, or run again: in the session's
 * pins, for the audit log, and for what follows when they have run.
 */
export class Inspection {
  readonly #session: InspectedSession;
  /** Undefined while none of the client's statements may belong in the audit log. */
  #audit: DdlAudit | undefined;
  /** A text that is too long to be inspected at once, while it is forwarded. */
  #large: LargeText | undefined;

  /** Set while a text that asks for them waits, and until it is inspected again. */
  #blockers: { found: Blockers | undefined; isOver: boolean } | undefined;

  constructor(session: InspectedSession) {
    this.#session = session;
  }

  /**
   * Whether the text has to wait until it is known by whom sessions are blocked. It is inspected again then. Where that cannot be found out,
   * it is sent as it is, and the server refuses it.
   */
  awaitsBlockers({ asksBlockers }: Inspected): boolean {
    if (!asksBlockers) return false;
    if (this.#blockers?.isOver === true) {
      this.#blockers = undefined;
      return false;
    }
    if (this.#blockers === undefined) void this.#findBlockers();
    return true;
  }

  async #findBlockers(): Promise<void> {
    const blockers: { found: Blockers | undefined; isOver: boolean } = { found: undefined, isOver: false };
    this.#blockers = blockers;
    blockers.found = await this.#session.services.blockers().catch(() => undefined);
    blockers.isOver = true;
    this.#session.continueInput();
  }

  /** Reads a text. @param isWhole false: it is only the beginning, and {@link goesOn} gets the rest */
  inspect(text: string, isWhole: boolean): Inspected {
    if (isWhole) return inspect(text, this.#session.services, this.options, this.#rewritten, this.#blockers?.found);
    return {
      traits: traitsOfBeginning(text),
      audited: this.#rewritten?.audited ?? new StreamedAuditedText(text),
      sent: text,
      edits: NO_EDITS,
      due: NO_SIGNALS,
      signals: NO_SIGNALS,
      deallocates: NO_NAMES,
      hasEscapes: false,
      asksBlockers: false,
    };
  }

  /** The text is sent. */
  apply({ traits, audited, due }: Pick<Inspected, 'traits' | 'audited' | 'due'>): void {
    if (audited !== undefined) this.runs(audited);
    if (traits !== NO_TRAITS) this.notice(traits);
    this.signal(due);
  }

  /** As {@link apply}, for the beginning of a long text. */
  applyBeginning(text: string, inspected: Inspected): void {
    this.apply(inspected);
    for (const traits of this.#rewritten?.traits ?? NO_PIECES) this.notice(traits);
    const { audited } = inspected;
    this.#large ??= new StreamedText(text, audited instanceof StreamedAuditedText ? audited : undefined);
  }

  /** Inspects a further part of a long text that is forwarded. */
  goesOn({ buffer, end }: FrameScanner, start: number): void {
    if (!(this.#large instanceof StreamedText)) return;
    const { traits, audited } = this.#large;
    if (audited !== undefined) for (const piece of piecesOf(buffer, start, end)) audited.add(piece);
    if (audited?.isWatched === true) this.#unsettle();
    for (const noticed of traits.traitsIn(buffer, start, end)) this.notice(noticed);
  }

  /** The message is over. */
  isOver(): void {
    this.#large = undefined;
  }

  /** A text that is too long to be inspected at once is being forwarded. */
  get isLong(): boolean {
    return this.#large !== undefined;
  }

  /** The beginning of the text that the client has sent, as Latin-1, if that has been rewritten in slices. */
  get beginning(): string | undefined {
    return this.#rewritten?.beginning;
  }

  get #rewritten(): RewrittenText | undefined {
    return this.#large instanceof StreamedText ? undefined : this.#large;
  }

  /** A statement with these traits is sent. */
  notice(traits: SessionTraits): void {
    const { pins } = this.#session;
    this.#session.timed = 'none';
    pins.statementSeen(traits);
    if (traits.changesDefaults) this.#session.received.defaultsChange(traits.defaultsOfRoles);
    if (traits.seedsRandom) pins.keep('seed');
    if (traits.cannotBePreparedAgain) pins.keep('oversized');
  }

  /** A text runs that may change objects or roles. */
  runs(audited: AuditedText): void {
    this.#auditOf().runs(audited);
    if (audited.isWatched) this.#unsettle();
  }

  /** A statement that is too long to keep has been prepared on the server. @param name as Latin-1 */
  isOversized(name: string, audited: AuditedText): void {
    this.#auditOf().oversized(name, audited);
  }

  /** The statement with this name on the server runs. @param name as Latin-1 */
  runsOversized(name: string): void {
    if (this.#audit?.oversizedAgain(name) === true) this.#unsettle();
  }

  #auditOf(): DdlAudit {
    this.#audit ??= new DdlAudit(this.#session.services);
    return this.#audit;
  }

  #unsettle(): void {
    this.#session.pins.unsettle();
    this.#session.timed = 'none';
  }

  /** Whether any of the client's statements may belong in the audit log. */
  get isAuditing(): boolean {
    return this.#audit !== undefined;
  }

  /** The client's request ends here. @returns what has to be known when its reply arrives, if anything */
  endRequest(deallocations: readonly string[] = NO_NAMES, edits: Edits = NO_EDITS, shows?: SessionTraits['shows']): RequestEnd | undefined {
    const batch = this.#audit?.take();
    const shown = shows && shownRows(this.#session.services, shows);
    const isPlain = batch === undefined && deallocations.length === 0 && edits.length === 0 && shown === undefined;
    return isPlain ? undefined : { batch, deallocations: [...deallocations], edits, shown };
  }

  /** The request with these texts has been answered. */
  answered(batch: Batch): void {
    this.#audit?.done(batch);
  }

  /** Sends the signals of a Bind whose statement calls `pg_cancel_backend($1)`. */
  signalsOf(signals: readonly ParameterSignal[], bind: FrameScanner): void {
    if (signals.length > 0) this.signal(parameterSignals(signals, bind));
  }

  /** Sends signals, and delays the request until they have arrived, because PostgreSQL's functions send theirs before they return. */
  signal(due: readonly DueSignal[]): void {
    if (due.length === 0) return;
    const { services, link } = this.#session;
    const sent = due
      .map(({ processId, signal }) => services.processIds.signal(processId, signal))
      .filter((arrived) => arrived !== undefined);
    if (sent.length > 0) void link.holdBackUntil(Promise.all(sent)).then(() => this.#session.continueInput());
  }

  /** How the server reads the session's next text; undefined: as it does by default. */
  get options(): LexerOptions | undefined {
    const { standardConformingStrings, clientEncoding } = this.#session;
    const doubleBytes = doubleBytesOf(clientEncoding);
    return standardConformingStrings && doubleBytes === undefined ? undefined : { standardConformingStrings, doubleBytes };
  }

  /** @throws ServiceError `payload_too_large`, `too_many_requests` for an incomplete text that has to be rewritten */
  demandWhole({ length, last }: FrameScanner): void {
    if (last || this.#session.services.rewriter === undefined || this.#large !== undefined) return;
    if (length > MAX_REWRITTEN_BYTES)
      throw new ServiceError('payload_too_large', `a statement may have at most ${MAX_REWRITTEN_BYTES} bytes in this placement`);
    throw new ServiceError('too_many_requests', 'statements that are being sent exceed the memory limit', {
      hint: 'Wait for some of them to end, or send less at once.',
    });
  }

  /** Whether the scanner's message, which is rewritten, has a text so long that rewriting it at once would delay other sessions. */
  isRewrittenInSlices({ first, type, length, last }: FrameScanner): boolean {
    if (!first || length < LARGE_SQL_BYTES || this.#large !== undefined) return false;
    return last && (type === FrontendType.Query || type === FrontendType.Parse);
  }

  /** Rewrites a complete Query or Parse in time slices, and inspects it. @returns what is sent; `begin` is called when that is handled */
  async rewriteInSlices(original: Buffer): Promise<{ readonly rewritten: Buffer; readonly begin: () => void }> {
    const { options } = this;
    const { rewriter } = this.#session.services;
    const rewriting = rewrittenMessage(original, (sql) => rewriter?.rewriteLarge(sql, options));
    const [rewritten, inspected] = await Promise.all([rewriting, inspectInSlices(original)]);
    return {
      rewritten,
      begin: () => {
        this.#large = inspected;
      },
    };
  }
}

const BEGINNING_BYTES = 8_192;

/** A Query or Parse message with its text rewritten. */
async function rewrittenMessage(
  original: Buffer,
  rewrite: (sql: Buffer) => Promise<{ readonly sql: Buffer }> | undefined,
): Promise<Buffer> {
  const start = original[0] === FrontendType.Parse ? original.indexOf(0, 5) + 1 : 5;
  const end = original.indexOf(0, start);
  const rewritten = await rewrite(original.subarray(start, end));
  return message(original[0] ?? 0, original.subarray(5, start), rewritten?.sql ?? original.subarray(start, end), original.subarray(end));
}

/** Inspects the text of a complete Query or Parse in time slices. */
async function inspectInSlices(message: Buffer): Promise<RewrittenText> {
  const traits: SessionTraits[] = [];
  const slices = new TimeSlices();
  const passing = new StreamedTraits();
  const audited = new StreamedAuditedText('');
  const isQuery = message[0] === FrontendType.Query;
  const start = isQuery ? HEADER_BYTES : stringEnd(message, HEADER_BYTES, message.length) + 1;
  for (let at = start; at < message.length; at += PIECE_BYTES) {
    const end = Math.min(message.length, at + PIECE_BYTES);
    traits.push(...passing.traitsIn(message, at, end));
    for (const piece of piecesOf(message, at, end)) audited.add(piece);
    await slices.pause();
  }
  return { traits, audited, beginning: message.toString('latin1', start, Math.min(start + BEGINNING_BYTES, message.length)) };
}

/** Stands beside the Sync, Query or FunctionCall that ends a request in the reply queue: what inspection has found for its reply. */
export interface RequestEnd {
  readonly batch: Batch | undefined;
  /** Names that a Query deallocates and that have not been answered yet, in order. */
  readonly deallocations: string[];
  /** The replacements made in the text of a Query. */
  readonly edits: Edits;
  /** What changes the rows for the client. */
  readonly shown: ShownRows | undefined;
}
