import type { ErrorCode } from '../errors.ts';

interface ErrorHelp {
  readonly cause: string;
  readonly cure: string;
}

/** What each error means, and what its receiver can do. */
export const ERROR_HELP: Readonly<Record<ErrorCode, ErrorHelp>> = {
  invalid_request: {
    cause: 'The body, the query string or a header is not as described here; the message names the field.',
    cure: 'Correct what the message names and send the request again.',
  },
  unsupported_statement: {
    cause: 'A statement that needs a session, such as BEGIN, LISTEN or COPY, was sent over HTTP.',
    cure: 'Use /api/transaction for several statements, or the wire door for what needs a session.',
  },
  unsupported_protocol: {
    cause: 'The client asked for a version or a feature of the PostgreSQL protocol that is not there, such as replication.',
    cure: 'Connect with an ordinary client, and without replication.',
  },
  protocol_violation: {
    cause: 'The client sent messages that the PostgreSQL protocol does not allow.',
    cure: 'Update the client. Report it if it is a current one.',
  },
  unauthorized: {
    cause: 'The key is missing, misspelt, rotated or deleted.',
    cure: 'Send "Authorization: Bearer <API key>". If the key is lost, the operator can issue a new one.',
  },
  organization_suspended: {
    cause: 'The operator has suspended the organization.',
    cure: 'Ask the operator. The key works again when it is resumed.',
  },
  not_allowed: {
    cause: 'The client may not connect this way: without TLS where it is required, or from a network that is not among those of the key.',
    cure: 'Do what the message says: set sslmode=require, or add the network to the key.',
  },
  forbidden: {
    cause: 'The key is valid, but its scope does not allow this.',
    cure: 'Use a key with the scope that the message names. Only a key with the scope admin makes others.',
  },
  too_many_login_failures: {
    cause: 'The key is wrong, and this address has failed to log in too often. The right key still logs in.',
    cure: 'Correct the key.',
  },
  unknown_database: {
    cause: 'The database in the connection is not the organization’s.',
    cure: 'Connect to the database that is named as the organization.',
  },
  not_found: { cause: 'There is nothing under this path or id.', cure: 'Compare the path and the method with this page.' },
  misdirected_request: {
    cause: 'The request names a host that this Postern does not serve, as a web page of another site may make a browser do.',
    cure: 'Use the address that Postern prints at its start. The operator sets POSTERN_PUBLIC_HOST for another name.',
  },
  method_not_allowed: { cause: 'The path has no such method.', cure: 'Use one of those in the Allow header.' },
  not_acceptable: { cause: 'The reply cannot be given in a format that the Accept header names.', cure: 'Accept application/json.' },
  unsupported_media_type: {
    cause: 'The body is not JSON in UTF-8, or is compressed.',
    cure: 'Send it as it is, with "Content-Type: application/json".',
  },
  signup_closed: { cause: 'The operator has closed sign-up.', cure: 'Ask the operator for an organization.' },
  invite_required: { cause: 'Sign-up needs an invitation here.', cure: 'Ask the operator for one, and send it as "invite".' },
  invite_invalid: {
    cause: 'The invitation is misspelt, used or expired, or it is for another e-mail address.',
    cure: 'Copy it whole and sign up with the address that it was made for, or ask the operator for another.',
  },
  email_taken: {
    cause: 'An organization with this e-mail address exists already.',
    cure: 'Go on with its key. If that is lost, the operator can issue a new one; then replace it by /api/auth/rotate-key.',
  },
  organization_busy: {
    cause: 'The organization is being cloned or moved, or sessions of it do not end.',
    cure: 'Try again after the time in Retry-After. End the transactions and the pinned sessions that the message counts.',
  },
  last_admin_key: {
    cause: 'The change would leave the organization without an admin key that does not expire and works from this address.',
    cure: 'Make another admin key first, or name your own address among the networks.',
  },
  too_many_keys: { cause: 'The organization has as many keys as it may have.', cure: 'Delete one that is not used any more.' },
  too_many_clones: { cause: 'The organization has as many clones as it may have.', cure: 'Delete one that is not used any more.' },
  too_many_queries: {
    cause: 'The organization has as many saved queries, or as much text in them, as it may have.',
    cure: 'Delete one that is not used any more.',
  },
  precondition_failed: {
    cause: 'What the request would change is not as If-Match or If-None-Match says: somebody has changed it.',
    cure: 'Read it again, and send the change with its new ETag.',
  },
  migration_checksum_mismatch: {
    cause: 'A migration of this name has been applied with other SQL.',
    cure: 'Leave it as it was applied, and put the change into a migration of another name.',
  },
  migration_not_reversible: {
    cause: 'The migration was applied without rollbackSql, or has failed half-way.',
    cure: 'Undo it with a migration of another name.',
  },
  migration_not_newest: {
    cause: 'Others were applied after this migration, which may need what it has made.',
    cure: 'Roll back the newest first, or send "force": true.',
  },
  idempotency_in_progress: { cause: 'The first copy of this request is still running.', cure: 'Send it again a second later.' },
  idempotency_key_reused: { cause: 'The Idempotency-Key was used for another request.', cure: 'Use a new key for each request.' },
  payload_too_large: { cause: 'The body is larger than this Postern takes.', cure: 'Send it in parts, or use COPY at the wire door.' },
  response_too_large: {
    cause: 'A row, or the results of a transaction, are larger than may be held in memory.',
    cure: 'Select fewer columns or rows. /api/query streams results of any size.',
  },
  insufficient_storage: {
    cause: 'The disk of the PostgreSQL server is nearly full, so nothing is copied on it.',
    cure: 'Delete clones and data that are not used any more, and tell the operator, who has to make the disk larger.',
  },
  disk_quota_exceeded: {
    cause: 'The organization has more data than it may have: it can read and delete, and nothing else.',
    cure: 'Make room with DROP or TRUNCATE, or with DELETE and then VACUUM FULL, or ask the operator for a higher limit. Writing is possible again a few seconds later.',
  },
  rate_limited: {
    cause: 'This was asked too often within an hour, or the organization has sent more requests in a second than its limit allows.',
    cure: 'Wait for the time in Retry-After. RateLimit says how many requests are left.',
  },
  too_many_requests: {
    cause: 'The organization has as many requests in flight, or as many bytes of them in memory, as it may have.',
    cure: 'Send fewer at the same time, and this one again after a second.',
  },
  too_many_connections: {
    cause: 'PostgreSQL, or the organization, has as many connections as it may have.',
    cure: 'Close those that are idle, and try again. The operator may raise the limits.',
  },
  pool_timeout: {
    cause:
      'All of the organization’s backends were busy for too long, or PostgreSQL had no connection slots free; detail says which, and names the sessions that have backends.',
    cure: 'Try again. Look for slow statements and for transactions that stay open: GET /api/sessions lists them, and can end them.',
  },
  statement_timeout: {
    cause: 'The statement took longer than its timeout.',
    cure: 'Ask for less or add an index; raise timeoutMs where it has to take long.',
  },
  query_canceled: { cause: 'The client went away, or canceled the request.', cure: 'Nothing, if that was meant.' },
  idle_in_transaction_timeout: {
    cause: 'A session was idle in a transaction for too long.',
    cure: 'Commit before the program waits for anything else.',
  },
  idle_session_timeout: {
    cause: 'A session was idle for longer than its idle_session_timeout.',
    cure: 'Connect again, or set it to 0.',
  },
  key_revoked: { cause: 'The key was rotated or deleted while the request ran.', cure: 'Use the new key.' },
  shutting_down: { cause: 'This process is stopping.', cure: 'Try again: another process or the next start answers.' },
  not_ready: { cause: 'PostgreSQL does not answer yet, or not any more.', cure: 'Try again after the time in Retry-After.' },
  backend_lost: {
    cause: 'The connection to PostgreSQL broke while the statement ran, and whether it was committed is not known.',
    cure: 'Look before sending it again. With an Idempotency-Key it can be sent again in any case.',
  },
  internal: { cause: 'Postern has made a mistake; its log has the details.', cure: 'Give the operator the requestId.' },
  sql_error: {
    cause: 'PostgreSQL has refused the statement; sqlstate and postgres say why and where.',
    cure: 'Correct the statement. PostgreSQL’s manual describes each SQLSTATE.',
  },
  serialization_failure: { cause: 'A concurrent transaction has changed what this one read.', cure: 'Send the whole transaction again.' },
  deadlock_detected: {
    cause: 'Two transactions each waited for a lock of the other.',
    cure: 'Send the whole transaction again. Let transactions take locks in the same order.',
  },
  lock_not_available: {
    cause: 'A lock was not free in time, or at once with NOWAIT.',
    cure: 'Try again when the other transaction has ended.',
  },
  statement_canceled: { cause: 'Somebody has canceled the statement.', cure: 'Send it again if it is still wanted.' },
  database_busy: {
    cause: 'The server is short of memory, disk space or connections.',
    cure: 'Try again later; tell the operator if it lasts.',
  },
  database_unavailable: {
    cause: 'The server has ended the session, for example because it restarts.',
    cure: 'Look whether the statement was carried out, then try again.',
  },
  malformed_request: { cause: 'What arrived is no valid HTTP request.', cure: 'Check the client and the proxies between.' },
  request_timeout: { cause: 'The request did not arrive in time.', cure: 'Send it again, over a better connection.' },
  headers_too_large: { cause: 'The headers are larger than 16 KiB.', cure: 'Send fewer or shorter ones.' },
};
