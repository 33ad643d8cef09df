import type { Readable } from 'node:stream';
import { jsonLayout, type StatementOutcome } from './layout.ts';
import { bindAndExecute } from './messages.ts';
import { checkParameterLimit, encodeParametersOf } from './parameters.ts';
import type { Completion, Replies } from './pipeline.ts';
import { ReplyBody } from './reply-body.ts';
import { outcomeOf, type ResultShape, ResultWriter } from './result.ts';
import type { Session } from './session.ts';
import { hasExpectedSettings } from './settings.ts';
import type { QueryReply, QueryRequest } from './statement.ts';
import type { KnownStatement } from './statement-cache.ts';
import { mayBeStale } from './statement-run.ts';

/** Told how a run ends; one of these is called, once. */
export interface RunListener {
  replied(reply: QueryReply): void;
  failed(error: unknown): void;
  /** The statement has to be prepared anew; the session has come to no harm, and is the listener's. */
  stale(): void;
}

/** The end of a statement whose reply has been told before. */
interface Ending {
  resolve(outcome: StatementOutcome): void;
  reject(error: Error): void;
}

/**
 * A statement that its backend has prepared, run in one write. This is what nearly all queries are, so it makes do without
 * promises: in the turn in which the reply is complete the backend goes to whoever waits for it, and then the reply out.
 */
export class PreparedRun implements Replies {
  readonly #session: Session;
  readonly #request: QueryRequest;
  readonly #known: KnownStatement;
  readonly #listener: RunListener;
  readonly #startedAt = performance.now();
  readonly #shape: ResultShape;
  readonly #body: ReplyBody;
  readonly #result: ResultWriter;
  #ending: Ending | undefined;
  #hasRows = false;
  #isCut = false;

  constructor(session: Session, request: QueryRequest, known: KnownStatement, listener: RunListener) {
    this.#session = session;
    this.#request = request;
    this.#known = known;
    this.#listener = listener;
    this.#shape = known.described.shape(request.layout ?? jsonLayout(request.rowMode));
    this.#body = new ReplyBody(session, (stream) => this.#streams(stream), request.lastWords, this.#shape.lastBytes);
    this.#result = new ResultWriter(this.#shape, this.#body.out);
  }

  /** Whether nothing but the statement itself has to be sent. */
  static isPossible({ lease: { backend } }: Session, { readOnly = false }: QueryRequest, { footprint, server }: KnownStatement): boolean {
    return !readOnly && !footprint.readsSequences && hasExpectedSettings(backend) && backend.session.prepared.use(server);
  }

  start(): void {
    const { footprint, described, server } = this.#known;
    const { params = [] } = this.#request;
    try {
      checkParameterLimit(params);
      const values = encodeParametersOf(described, params);
      void this.#session.expect(footprint);
      this.#session.send([bindAndExecute(values, server.name)], this, [], (ended) => this.#settle(ended));
    } catch (error) {
      this.#fail(error instanceof Error ? error : new Error('the statement could not be sent', { cause: error }));
    }
  }

  row(source: Buffer, start: number): void {
    this.#isCut ||= this.#session.abortReason !== undefined;
    if (this.#isCut) return;
    this.#hasRows = true;
    this.#result.row(source, start);
    this.#body.flow();
  }

  #settle(ended: Completion | Error): void {
    if (!(ended instanceof Error)) this.#succeed(ended);
    else if (mayBeStale(ended) && !this.#hasRows && this.#session.status === 'I') this.#listener.stale();
    else this.#fail(ended);
  }

  #succeed({ tag, warnings }: Completion): void {
    const { abortReason } = this.#session;
    // The statement may have got to its end in spite of all, but not its rows.
    if (this.#isCut && abortReason !== undefined) {
      this.#fail(abortReason);
      return;
    }
    const outcome = outcomeOf(tag, this.#startedAt);
    this.#result.close(outcome, warnings);
    const done = this.#session.end().then(() => outcome);
    if (this.#ending === undefined) this.#shape.lastBytes = this.#body.out.length;
    const body = this.#body.finish();
    if (this.#ending === undefined) this.#listener.replied({ body, outcome, done });
    else done.then(this.#ending.resolve, this.#ending.reject);
  }

  #fail(error: Error): void {
    this.#body.fail(error);
    const tell = () => (this.#ending === undefined ? this.#listener.failed(error) : this.#ending.reject(error));
    this.#session.end().then(tell, tell);
  }

  #streams(stream: Readable): void {
    const done = new Promise<StatementOutcome>((resolve, reject) => {
      this.#ending = { resolve, reject };
    });
    done.catch(() => {});
    this.#listener.replied({ body: stream, done });
  }
}
