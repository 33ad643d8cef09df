/**
 * The least that a login by SCRAM costs in Node: each of a client's three messages is answered with bytes of a usual length that were
 * encoded at the start, and the connection is closed at the fourth. Nothing is parsed, verified or recorded. A process of its own; says
 * its port.
 */
import { createServer } from 'node:net';
import { encodeBackendMessage } from '../../src/protocol/backend.ts';

const PARAMETERS = 15;

const ANSWERS = [
  encodeBackendMessage({ name: 'AuthenticationSASL', mechanisms: ['SCRAM-SHA-256'] }),
  encodeBackendMessage({ name: 'AuthenticationSASLContinue', data: Buffer.from(`r=${'n'.repeat(60)},s=${base64(16)},i=4096`) }),
  Buffer.concat([
    encodeBackendMessage({ name: 'AuthenticationSASLFinal', data: Buffer.from(`v=${base64(32)}`) }),
    encodeBackendMessage({ name: 'AuthenticationOk' }),
    ...Array.from({ length: PARAMETERS }, () =>
      encodeBackendMessage({ name: 'ParameterStatus', parameter: 'name_of_setting', value: 'value' }),
    ),
    encodeBackendMessage({ name: 'BackendKeyData', processId: 1, secretKey: Buffer.alloc(4) }),
    encodeBackendMessage({ name: 'ReadyForQuery', status: 'I' }),
  ]),
];

const server = createServer({ noDelay: true }, (client) => {
  let answered = 0;
  client.on('error', () => {});
  client.on('data', () => {
    const answer = ANSWERS[answered];
    answered += 1;
    if (answer === undefined) client.destroy();
    else client.write(answer);
  });
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`${JSON.stringify(server.address())}\n`));

function base64(bytes: number): string {
  return Buffer.alloc(bytes, 1).toString('base64');
}
