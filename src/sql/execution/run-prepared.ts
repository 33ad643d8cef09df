import type { Readable } from 'node:stream';
import type { BackendConnection } from '../../backend/connection.ts';
import type { Staleness } from '../../backend/session-state.ts';
import type { TransactionStatus } from '../../protocol/backend.ts';
import { bindAndExecute } from '../../protocol/frontend.ts';
import { turnStartedAt } from '../../runtime/event-loop.ts';
import type { Edits } from '../../syntax/edits.ts';
import type { SideEffects } from '../../syntax/side-effects.ts';
import { areMany, checkParameterLimit, encodeParametersOf } from '../parameters/encode-parameters.ts';
import { jsonFormat } from '../result/formats/json-format.ts';
import { ReplyBody } from '../result/reply-body.ts';
import type { RowSource } from '../result/reply-stream.ts';
import { type ResultShape, ResultWriter } from '../result/result-writer.ts';
import { outcomeOf, type StatementOutcome } from '../result/statement-outcome.ts';
import { hasExpectedSettings } from '../session/output-settings.ts';
import type { Completion, Replies, Settle } from '../session/replies-and-completion.ts';
import { withEndOfSetting } from '../session/warnings.ts';
import { withCompletion } from './error-hint-and-detail.ts';
import { type KnownStatement, stalenessOfRun } from './known-statements.ts';
import type { QueryReply, QueryRequest } from './query-request-and-reply.ts';

/** Is notified how a run ends. One of these methods is called, once. */
export interface RunListener {
  replied(reply: QueryReply): void;
  failed(error: unknown): void;
  /** The statement has to be described again. The session can still be used, and the listener has to end it. */
  stale(staleness: NonNullable<Staleness>): void;
}

/** Where a statement runs: in a session of its own, or in a slot of a shared pipeline. */
export interface RunHost extends RowSource {
  readonly status: TransactionStatus;
  /** When the statements ahead of this one had been answered, by `performance.now()`; undefined if there were none. */
  readonly slotStartedAt: number | undefined;
  /** The backend is not shared with other requests. */
  readonly isAlone: boolean;
  expect(sideEffects: SideEffects): unknown;
  send(messages: readonly Uint8Array[], replies: Replies, edits: Edits, settle: Settle): void;
  end(): Promise<void>;
}

/** Settles `done` of a reply that was handed out as a stream. */
interface DoneSettler {
  resolve(outcome: StatementOutcome): void;
  reject(error: Error): void;
}

/**
 * Runs a statement that its backend has prepared, in one write. Nearly all queries are of this kind, so their replies need no promises:
 * in the turn in which a reply is complete, first the backend goes to whoever waits for it, and then the reply is sent.
 */
export class PreparedRun implements Replies {
  readonly #host: RunHost;
  readonly #request: QueryRequest;
  readonly #known: KnownStatement;
  readonly #listener: RunListener;
  readonly #startedAt = performance.now();
  readonly #shape: ResultShape;
  readonly #body: ReplyBody;
  readonly #result: ResultWriter;
  #done: DoneSettler | undefined;
  #isBound = false;
  #hasRows = false;
  #isCut = false;

  constructor(host: RunHost, request: QueryRequest, known: KnownStatement, listener: RunListener) {
    this.#host = host;
    this.#request = request;
    this.#known = known;
    this.#listener = listener;
    this.#shape = known.described.shape(request.format ?? jsonFormat(request.rowMode));
    this.#body = new ReplyBody(host, (stream) => this.#startStream(stream), request.finalBytes, this.#shape.lastBytes);
    this.#result = new ResultWriter(this.#shape, this.#body.out);
  }

  /** @returns whether the statement can be sent at once, with no other request before it */
  static isPossible(
    backend: BackendConnection,
    { readOnly = false, params = [] }: QueryRequest,
    { sideEffects, server }: KnownStatement,
  ): boolean {
    return (
      !readOnly &&
      !areMany(params) &&
      !sideEffects.readsSequences &&
      hasExpectedSettings(backend) &&
      backend.session.prepared.use(server) !== undefined
    );
  }

  start(): void {
    const { sideEffects, described, server } = this.#known;
    const { params = [] } = this.#request;
    try {
      checkParameterLimit(params);
      const values = encodeParametersOf(described, params);
      void this.#host.expect(sideEffects);
      this.#host.send([bindAndExecute(values, server.name)], this, [], (ended) => this.#settle(ended));
    } catch (error) {
      const staleness = stalenessOfRun(error, false);
      if (staleness !== undefined) this.#listener.stale(staleness);
      else this.#fail(error instanceof Error ? error : new Error('the statement could not be sent', { cause: error }));
    }
  }

  bound(): void {
    this.#isBound = true;
  }

  row(source: Buffer, start: number, end: number): void {
    this.#isCut ||= this.#host.abortReason !== undefined || !this.#body.hasRoomFor(end - start);
    if (this.#isCut) return;
    this.#hasRows = true;
    this.#result.row(source, start);
    this.#isCut = !this.#body.flow();
  }

  async largeRow(source: Buffer, start: number): Promise<void> {
    this.#isCut ||= this.#host.abortReason !== undefined;
    if (this.#isCut) return;
    this.#hasRows = true;
    this.#isCut = !(await this.#body.flowInParts(this.#result.rowInParts(source, start)));
  }

  interrupt(): void {
    this.#body.interrupt();
  }

  #settle(ended: Completion | Error): void {
    if (!(ended instanceof Error)) {
      this.#succeed(ended);
      return;
    }
    const staleness = this.#hasRows || this.#host.status !== 'I' ? undefined : stalenessOfRun(ended, this.#isBound);
    if (staleness === undefined) {
      this.#count(0, true);
      this.#fail(ended);
    } else this.#listener.stale(staleness);
  }

  #succeed({ tag, warnings }: Completion): void {
    const { abortReason } = this.#host;
    // The statement may have completed before it could be canceled, but not all of its rows were taken.
    if (this.#isCut && abortReason !== undefined) {
      this.#count(tag?.rowCount ?? 0, true);
      this.#fail(withCompletion(abortReason));
      return;
    }
    const outcome = outcomeOf(tag, this.#startedAt);
    this.#result.close(outcome, withEndOfSetting(warnings, outcome.command));
    this.#measure();
    this.#count(outcome.rowCount ?? 0, false);
    const done = this.#host.end().then(() => outcome);
    if (this.#done === undefined) this.#shape.lastBytes = this.#body.out.length;
    const body = this.#body.finish();
    if (this.#done === undefined) this.#listener.replied({ body, outcome, done });
    else done.then(this.#done.resolve, this.#done.reject);
  }

  /** Records how long Postgres took. This decides whether the same statement may share a backend next time. */
  #measure(): void {
    const { latency, baseline } = this.#known;
    if (latency === undefined) return;
    const durationMs = this.#durationMs;
    latency.ran(durationMs, this.#done === undefined ? this.#body.out.length : Number.POSITIVE_INFINITY, baseline);
    if (this.#host.isAlone) latency.ranAlone(durationMs);
  }

  #count(rows: number, hasFailed: boolean): void {
    this.#known.counted?.ran(turnStartedAt(), this.#durationMs, rows, this.#body.bytes, hasFailed);
  }

  /** Since it was sent, or those ahead of it were answered. */
  get #durationMs(): number {
    return Math.max(0, turnStartedAt() - (this.#host.slotStartedAt ?? this.#startedAt));
  }

  #fail(error: Error): void {
    this.#body.fail(error);
    const settle = () => (this.#done === undefined ? this.#listener.failed(error) : this.#done.reject(error));
    this.#host.end().then(settle, settle);
  }

  #startStream(stream: Readable): void {
    const done = new Promise<StatementOutcome>((resolve, reject) => {
      this.#done = { resolve, reject };
    });
    done.catch(() => {});
    this.#listener.replied({ body: stream, done });
  }
}
