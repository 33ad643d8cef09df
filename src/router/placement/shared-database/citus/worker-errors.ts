import type { ErrorFields } from '../../../../protocol/backend.ts';

/** Lines of an error's context in which Citus names the worker on which a part of the statement ran. */
const WORKER_ADDRESS = /^.*\bwhile executing command on \S+:\d+.*\n?/gm;

/** A worker's names of tables and what belongs to them end in the number of the shard. */
const SHARD_NUMBER = /(\b(?:table|relation|constraint|index|sequence|view) "[^"]*)_\d{6,}(?=")/g;

/** Class 08, and the internal error that Citus reports for a session of before. */
const CONNECTION_CODE = /^(08|XX000)/;
const CONNECTION_FAILED = /^(connection to the remote node|failure on connection|failed to connect|could not (establish|connect))/;

/** Messages of a worker that was not reached, as libpq and the server word them. A statement that was running there may have been committed. */
const NOT_REACHED =
  /Connection refused|timeout expired|could not translate host name|No route to host|(Host|Network) is unreachable|the database system is/i;

/** What a client may know of an error that Citus reports of a worker: neither its address nor the names of shards. */
export function withoutWorker(fields: ErrorFields): ErrorFields {
  const { code, severity, message, detail, where } = fields;
  if (CONNECTION_CODE.test(code) && CONNECTION_FAILED.test(message)) {
    const isRetryable = NOT_REACHED.test(message);
    return {
      severity,
      code: isRetryable ? '57P03' : '08006',
      message: `the connection to the server that holds this data ${isRetryable ? 'failed' : 'was lost'}`,
    };
  }
  const context = where?.replace(WORKER_ADDRESS, '');
  if (context === where || context === undefined) return fields;
  const named = (text: string) => text.replace(SHARD_NUMBER, '$1');
  return { ...fields, message: named(message), ...(detail === undefined ? {} : { detail: named(detail) }), where: context };
}
