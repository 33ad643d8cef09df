import { beginScram, type ScramMechanism, type ScramOffer, type ScramState, stepScram } from '../../src/auth/scram.ts';
import { ServiceError } from '../../src/errors.ts';
import type { Origin } from '../../src/observation.ts';
import { encodeBackendMessage } from '../../src/protocol/backend.ts';
import { decodePasswordMessage, decodeSaslInitialResponse } from '../../src/protocol/frontend.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import type { Tenant } from '../../src/router/lease.ts';
import { randomSecretBytes } from '../../src/runtime/bytes.ts';
import type { ClientConnection } from '../client-connection.ts';
import { protocolViolation } from '../errors.ts';

/** The authentication method. `cleartext` is used only where something else encrypts the connection. */
export interface LoginMethod {
  readonly method: 'scram' | 'cleartext';
  /** tls-server-end-point data of this connection (RFC 5929); present if SCRAM-SHA-256-PLUS is offered. */
  readonly channelBinding?: Uint8Array | undefined;
}

const PASSWORD_MESSAGE = 0x70;
const NONCE_BYTES = 18;
const NO_DATA = Buffer.alloc(0);

/** All clients with the same kind of connection get the same offer. */
const [PLAIN, BOUND] = [offer('SCRAM-SHA-256'), offer('SCRAM-SHA-256-PLUS', 'SCRAM-SHA-256')];

function offer(...mechanisms: readonly ScramMechanism[]) {
  return { mechanisms, message: encodeBackendMessage({ name: 'AuthenticationSASL', mechanisms }) };
}

/**
 * Asks the client for its key and has it checked. After success the caller sends the next messages, together with the
 * final message of the exchange.
 * @throws ServiceError to be sent as FATAL, ClientGone
 */
export function authenticate(
  client: ClientConnection,
  user: string,
  authenticator: Authenticator,
  login: LoginMethod,
  origin: Origin,
): Promise<Tenant> {
  if (login.method === 'cleartext') return authenticateByPassword(client, user, authenticator, origin);
  return authenticator.authenticate(
    { kind: 'scram', user, exchange: (verifiers, former) => scramExchange(client, user, verifiers, former, login.channelBinding) },
    origin,
  );
}

async function authenticateByPassword(
  client: ClientConnection,
  user: string,
  authenticator: Authenticator,
  origin: Origin,
): Promise<Tenant> {
  client.write(encodeBackendMessage({ name: 'AuthenticationCleartextPassword' }));
  const apiKey = decodePasswordMessage(await readResponse(client, user, 'password'));
  return authenticator.authenticate({ kind: 'password', user, apiKey }, origin);
}

/**
 * @returns the stored key of the key, or of the former one, that the client proved to know
 * @see https://www.postgresql.org/docs/current/sasl-authentication.html
 */
async function scramExchange(
  client: ClientConnection,
  user: string,
  verifiers: ScramOffer['verifiers'],
  former: readonly Buffer[],
  channelBinding: Uint8Array | undefined,
): Promise<Buffer | undefined> {
  const { mechanisms, message } = channelBinding === undefined ? PLAIN : BOUND;
  client.write(message);
  const initial = decodeSaslInitialResponse(await readResponse(client, user, 'SASL'));
  const mechanism = mechanisms.find((offered) => offered === initial.mechanism);
  if (mechanism === undefined) throw protocolViolation('client selected an invalid SASL authentication mechanism');
  const nonce = randomSecretBytes(NONCE_BYTES).toString('base64');
  let state: ScramState = beginScram({ mechanism, verifiers, former, nonce, channelBinding });
  let input = initial.data;
  if (input === undefined) {
    // If the client has left out its first message, an empty challenge asks for it.
    client.write(encodeBackendMessage({ name: 'AuthenticationSASLContinue', data: NO_DATA }));
    input = await readResponse(client, user, 'SASL');
  }
  for (;;) {
    const { state: next, reply } = stepScram(state, input);
    if (next.name === 'rejected') return next.former;
    if (next.name === 'authenticated') {
      client.hold(encodeBackendMessage({ name: 'AuthenticationSASLFinal', data: reply ?? NO_DATA }));
      return next.storedKey;
    }
    client.write(encodeBackendMessage({ name: 'AuthenticationSASLContinue', data: reply ?? NO_DATA }));
    state = next;
    input = await readResponse(client, user, 'SASL');
  }
}

/** Postgres' limits (PG_MAX_SASL_MESSAGE_LENGTH, PG_MAX_AUTH_TOKEN_LENGTH). */
const MAX_RESPONSE_BYTES = { SASL: 1_024, password: 65_535 };

function readResponse(client: ClientConnection, user: string, expected: 'password' | 'SASL'): Promise<Buffer> {
  const tooLong = () => new ServiceError('unauthorized', `password authentication failed for user "${user}"`);
  return client.login.readMessage(PASSWORD_MESSAGE, expected, MAX_RESPONSE_BYTES[expected], tooLong);
}
