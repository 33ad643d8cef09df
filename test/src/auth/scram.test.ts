import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, expect, inject, test } from 'vitest';
import {
  beginScram,
  deriveVerifier,
  formatVerifier,
  mockVerifiers,
  type ScramOffer,
  type ScramState,
  stepScram,
} from '../../../src/auth/scram.ts';
import { BackendType, decodeErrorFields } from '../../../src/protocol/backend.ts';
import { backendFrames } from '../../../src/protocol/framing.ts';
import { type Message, MessageReader } from '../../support/message-reader.ts';
import { SeededRandom } from '../../support/random.ts';

const SALT = Buffer.from('W22ZaJ0SNY7soEsUEjb6gQ==', 'base64');
/** Of the password `pencil`, as RFC 7677 has it. */
const VERIFIER = {
  iterations: 4096,
  salt: SALT,
  storedKey: Buffer.from('WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=', 'base64'),
  serverKey: Buffer.from('wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=', 'base64'),
};
const CLIENT_NONCE = 'rOprNGfwEbeRWgbNEkqO';
const NONCE = `${CLIENT_NONCE}3rfcNHYJY1ZVvWVs7j`;
const OFFER: ScramOffer = { mechanism: 'SCRAM-SHA-256', verifiers: [VERIFIER], nonce: '3rfcNHYJY1ZVvWVs7j' };
const BINDING = Buffer.from(Array.from({ length: 32 }, (_, i) => i + 1));
const PLUS: ScramOffer = { ...OFFER, mechanism: 'SCRAM-SHA-256-PLUS', channelBinding: BINDING };

/** What the exchange comes to: its last state, and the replies. */
function converse(offer: ScramOffer, ...messages: (string | Buffer)[]): [ScramState['name'], ...string[]] {
  let state = beginScram(offer);
  const replies: string[] = [];
  for (const message of messages) {
    const step = stepScram(state, Buffer.from(message));
    state = step.state;
    if (step.reply !== undefined) replies.push(step.reply.toString('latin1'));
  }
  return [state.name, ...replies];
}

function lastState(offer: ScramOffer, ...messages: string[]): ScramState {
  return messages.reduce((state, message) => stepScram(state, Buffer.from(message)).state, beginScram(offer));
}

function refusal(offer: ScramOffer, ...messages: (string | Buffer)[]): [kind: string, message: string, detail?: string] {
  try {
    converse(offer, ...messages);
  } catch (error) {
    expect(error).toMatchObject({ name: 'ServiceError' });
    const { sqlstate, message, detail } = error as { sqlstate: string; message: string; detail?: string };
    return detail === undefined ? [sqlstate, message] : [sqlstate, message, detail];
  }
  throw new Error('nothing was thrown');
}

describe('verifiers', () => {
  test('are derived as RFC 7677 says', async () => {
    expect(await deriveVerifier('pencil', SALT, 4096)).toEqual(VERIFIER);
  });

  test('are written as Postgres writes them', () => {
    expect(formatVerifier(VERIFIER)).toBe(
      'SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=',
    );
  });

  test('of users who do not exist are always the same, and differ between users', () => {
    const secret = Buffer.from('only this service knows it');
    const mocks = mockVerifiers('org_a', secret);
    expect(mockVerifiers('org_a', secret)).toEqual(mocks);
    for (const { iterations, salt, storedKey, serverKey } of mocks)
      expect([iterations, salt.length, storedKey.length, serverKey.length]).toEqual([4096, 16, 32, 32]);
    expect(mockVerifiers('org_b', secret)[0].salt).not.toEqual(mocks[0].salt);
    expect(mockVerifiers('org_a', Buffer.from('another'))[0].salt).not.toEqual(mocks[0].salt);
  });

  test('of users who do not exist are as many as real users have', () => {
    const secret = Buffer.from('only this service knows it');
    const counts = Array.from({ length: 800 }, (_, n) => mockVerifiers(`org_${n}`, secret).length);
    const share = (count: number) => counts.filter((one) => one === count).length / counts.length;
    expect(new Set(counts)).toEqual(new Set([1, 2, 4, 8]));
    expect(share(1)).toBeCloseTo(1 / 2, 1);
    expect(share(2)).toBeCloseTo(1 / 4, 1);
  });
});

describe('SCRAM-SHA-256', () => {
  test('the exchange of RFC 7677', () => {
    const nonce = '%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0';
    const first = `n,,n=user,r=${CLIENT_NONCE}`;
    const final = `c=biws,r=${CLIENT_NONCE}${nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=`;
    expect(converse({ ...OFFER, nonce }, first, final)).toEqual([
      'authenticated',
      `r=${CLIENT_NONCE}${nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096`,
      'v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=',
    ]);
  });

  test('unknown attributes are allowed and signed', () => {
    const first = `n,,n=,r=${CLIENT_NONCE},x=1`;
    const final = `c=biws,r=${NONCE},p=OSyJuhoSyGWDZfE0JUuQf+AEi8/3yT5mEMzdEq2LFVE=`;
    expect(converse(OFFER, first, final)[0]).toBe('authenticated');
    expect(converse(OFFER, first.replace('x=1', 'x=2'), final)[0]).toBe('rejected');
  });

  test('a client that could bind the channel says so, where binding was not offered', () => {
    const first = `y,,n=,r=${CLIENT_NONCE}`;
    const final = `c=eSws,r=${NONCE},p=U155gCOqi2jr6IhEVJ7CgncdC/nQ8d7bxGlfqwS3I1M=`;
    expect(converse(OFFER, first, final)[0]).toBe('authenticated');
    expect(refusal(OFFER, first, final.replace('eSws', 'biws'))).toEqual([
      '08P01',
      'unexpected SCRAM channel-binding attribute in client-final-message',
    ]);
  });

  test('the same client is refused where binding was offered, because the offer was removed', () => {
    expect(refusal({ ...OFFER, channelBinding: BINDING }, `y,,n=,r=${CLIENT_NONCE}`)).toEqual([
      '28000',
      'SCRAM channel binding negotiation error',
      'The client supports SCRAM channel binding but thinks the server does not.  However, this server does support channel binding.',
    ]);
    expect(converse({ ...OFFER, channelBinding: BINDING }, `n,,n=,r=${CLIENT_NONCE}`)[0]).toBe('awaitingClientFinal');
  });

  test('a wrong proof is rejected without a reply', () => {
    const [first, proof] = [`n,,n=,r=${CLIENT_NONCE}`, Buffer.alloc(32, 7).toString('base64')];
    const [state, ...replies] = converse(OFFER, first, `c=biws,r=${NONCE},p=${proof}`);
    expect([state, replies.length]).toEqual(['rejected', 1]);
    expect(converse({ ...OFFER, verifiers: mockVerifiers('org_a', SALT) }, first, `c=biws,r=${NONCE},p=${proof}`)[0]).toBe('rejected');
  });

  test('the proof of a former password is rejected without a reply, and recognized', () => {
    const [first, proof] = [`n,,n=,r=${CLIENT_NONCE}`, 'OSyJuhoSyGWDZfE0JUuQf+AEi8/3yT5mEMzdEq2LFVE='];
    const messages = [`${first},x=1`, `c=biws,r=${NONCE},p=${proof}`];
    const { storedKey, ...same } = VERIFIER;
    const renewed = { ...OFFER, verifiers: [{ ...same, storedKey: Buffer.alloc(32, 1) }] } satisfies ScramOffer;
    const former = [Buffer.alloc(32, 2), storedKey];
    expect(lastState({ ...renewed, former }, ...messages)).toEqual({ name: 'rejected', former: storedKey });
    expect(converse({ ...renewed, former }, ...messages)).toHaveLength(2);
    expect(lastState({ ...renewed, former: [Buffer.alloc(32, 2)] }, ...messages)).toEqual({ name: 'rejected' });
    expect(lastState(renewed, ...messages)).toEqual({ name: 'rejected' });
    // The live one is what counts.
    expect(lastState({ ...OFFER, former }, ...messages)).toEqual({ name: 'authenticated', storedKey });
  });

  test('of several passwords the one that the client knows is found, and signs, wherever it stands among a hundred', () => {
    const [first, proof] = [`n,,n=,r=${CLIENT_NONCE}`, 'OSyJuhoSyGWDZfE0JUuQf+AEi8/3yT5mEMzdEq2LFVE='];
    const messages = [`${first},x=1`, `c=biws,r=${NONCE},p=${proof}`];
    const [, , signature] = converse(OFFER, ...messages);
    const others = Array.from({ length: 99 }, (_, n) => ({
      ...VERIFIER,
      storedKey: Buffer.alloc(32, n + 1),
      serverKey: Buffer.alloc(32, n),
    }));
    for (const at of [0, 50, 99]) {
      const [one = VERIFIER, ...rest] = others.toSpliced(at, 0, VERIFIER);
      const offer: ScramOffer = { ...OFFER, verifiers: [one, ...rest] };
      expect(lastState(offer, ...messages)).toEqual({ name: 'authenticated', storedKey: VERIFIER.storedKey });
      expect(converse(offer, ...messages)[2]).toBe(signature);
    }
    const [one = VERIFIER, ...rest] = others;
    expect(lastState({ ...OFFER, verifiers: [one, ...rest] }, ...messages)).toEqual({ name: 'rejected' });
  });

  test('nothing can follow the end', () => {
    const messages = [`n,,n=,r=${CLIENT_NONCE}`, `c=biws,r=${NONCE},p=${Buffer.alloc(32).toString('base64')}`];
    expect(refusal(OFFER, ...messages, 'again')[0]).toBe('08P01');
  });
});

describe('SCRAM-SHA-256-PLUS', () => {
  const first = `p=tls-server-end-point,,n=,r=${CLIENT_NONCE}`;
  const header = 'cD10bHMtc2VydmVyLWVuZC1wb2ludCws';

  test('a client that saw our certificate', () => {
    const final = `c=${header}AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=,r=${NONCE},p=E5VIzE6umI/4/zBc4F7z50DK4SMSDOhqHNnL8yRClQg=`;
    expect(converse(PLUS, first, final)).toEqual([
      'authenticated',
      `r=${NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096`,
      'v=kitlPy2oYldj6MqqvtYJ3Z5oaJf7iZSjIaf5X1KxiME=',
    ]);
  });

  test('a client that saw another certificate, whose proof is right for that one', () => {
    const final = `c=${header}AgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICE=,r=${NONCE},p=px3+eeizIWXtKWEs7wgtOHTEHcQ+ueC8wd6RInFsao0=`;
    expect(refusal(PLUS, first, final)).toEqual(['28000', 'SCRAM channel binding check failed']);
    expect(refusal(PLUS, first, `c=${header},r=${NONCE},p=AAAA`)).toEqual(['28000', 'SCRAM channel binding check failed']);
    expect(refusal(PLUS, first, `c=biws,r=${NONCE},p=AAAA`)).toEqual(['28000', 'SCRAM channel binding check failed']);
  });

  test.each(['n', 'y'])('a client that selects it and does not bind: %s', (flag) => {
    expect(refusal(PLUS, `${flag},,n=,r=x`)).toEqual([
      '08P01',
      'malformed SCRAM message',
      'The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.',
    ]);
  });

  test('a client that binds where we know of no channel', () => {
    const unbound: ScramOffer = { ...OFFER, mechanism: 'SCRAM-SHA-256-PLUS' };
    expect(refusal(unbound, first, `c=${header},r=${NONCE},p=AAAA`)).toEqual(['28000', 'SCRAM channel binding check failed']);
  });

  test('a kind of binding that we do not have', () => {
    expect(refusal(PLUS, 'p=tls-unique,,n=,r=x')).toEqual(['08P01', 'unsupported SCRAM channel-binding type "tls-unique"']);
    expect(refusal(PLUS, 'p=a b\n,,n=,r=x')[1]).toBe('unsupported SCRAM channel-binding type "a?b?"');
  });

  test('binding without having selected it', () => {
    expect(refusal({ ...OFFER, channelBinding: BINDING }, first)[2]).toBe(
      'The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.',
    );
  });
});

describe('messages that break the rules', () => {
  const FIRST = 'n,,n=,r=abc';
  const PROOF = Buffer.alloc(32, 7).toString('base64');
  /** `{nonce}` stands for the nonce of both sides. */
  const broken: string[][] = [
    [''],
    ['n,,n=,r=a\0bc'],
    ['x,,n=,r=abc'],
    [',,n=,r=abc'],
    ['\x01,,n=,r=abc'],
    ['n'],
    ['n;,n=,r=abc'],
    ['nn,,n=,r=abc'],
    ['n,'],
    ['n,x=,n=,r=abc'],
    ['n,a=admin,n=,r=abc'],
    ['n,,m=ext,n=,r=abc'],
    ['n,,'],
    ['n,,n'],
    ['n,,n,r=abc'],
    ['n,,n='],
    ['n,,n=user'],
    ['n,,r=abc,n='],
    ['n,,n=user,x=abc'],
    ['n,,n=,r=a bc'],
    ['n,,n=,r=abc\x7f'],
    ['n,,n=,r=äbc'],
    ['n,,n=,r=abc,1=x'],
    ['n,,n=,r=abc,x'],
    ['n,,n=,r=abc,,'],
    ['p=tls-server-end-point,,n=,r=abc'],
    [FIRST, 'c=biws'],
    [FIRST, 'r={nonce}'],
    [FIRST, 'c=eSws,r={nonce},p=AAAA'],
    [FIRST, `c=,r={nonce},p=${PROOF}`],
    [FIRST, 'c=biws,r={nonce}'],
    [FIRST, 'c=biws,r={nonce},'],
    [FIRST, 'c=biws,r={nonce},x=1'],
    [FIRST, 'c=biws,r={nonce},p='],
    [FIRST, 'c=biws,r={nonce},p=AAAA'],
    [FIRST, 'c=biws,r={nonce},p=!!!!'],
    [FIRST, `c=biws,r={nonce},p=${PROOF.slice(0, -1)}`],
    [FIRST, `c=biws,r={nonce},p=${PROOF}AAAA`],
    [FIRST, `c=biws,r={nonce},p=${'A'.repeat(900)}`],
    [FIRST, `c=biws,r={nonce},p=${PROOF},x=1`],
    [FIRST, `c=biws,r=abc,p=${PROOF}`],
    [FIRST, `c=biws,r=,p=${PROOF}`],
    [FIRST, `c=biws,r={nonce}x,p=${PROOF}`],
    [FIRST, `c=biws,n={nonce},p=${PROOF}`],
    [FIRST, `c=biws,r={nonce},p=${PROOF}`],
    [FIRST, `c=biws,r={nonce},x=1,y=2,p=${PROOF}`],
    [FIRST, '\u00ff'],
  ];

  test.each(broken.map((messages) => [messages.join(' | ').slice(0, 60), messages] as const))(
    'Postgres says the same of %j',
    async (_, messages) => {
      const postgres = await new PostgresLogin().refusal(messages);
      const finals = messages.map((message) => message.replace('{nonce}', `abc${OFFER.nonce}`));
      if (postgres[0] === '28P01') expect(converse(OFFER, ...finals)[0]).toBe('rejected');
      else expect(refusal(OFFER, ...finals)).toEqual(postgres);
    },
  );

  test('huge ones are broken as small ones are', () => {
    const huge = 'A'.repeat(60_000);
    const final = (proof: string) => `c=biws,r=abc${OFFER.nonce},p=${proof}`;
    expect(refusal(OFFER, FIRST, final(huge))[2]).toBe('Malformed proof in client-final-message.');
    expect(refusal(OFFER, FIRST, huge)[2]).toBe(`Expected attribute "c" but found "'A'".`);
    expect(converse(OFFER, `n,,n=${huge},r=${huge}`, `c=biws,r=${huge}${OFFER.nonce},p=${PROOF}`)[0]).toBe('rejected');
  });

  test('random messages end in a ServiceError or in rejection', () => {
    const random = new SeededRandom(3);
    const alphabet = Buffer.from('npyc=,,==rabcmvx1\0\xff{}');
    for (let round = 0; round < 5_000; round++) {
      const messages = ['n,,n=,r=abc', `c=biws,r=abc${OFFER.nonce},p=${PROOF}`].map((text) => Buffer.from(text));
      const changed = messages[random.below(2)] ?? Buffer.alloc(0);
      for (let i = random.below(4); i >= 0; i--) changed[random.below(changed.length)] = alphabet[random.below(alphabet.length)] ?? 0;
      try {
        expect(converse(OFFER, ...messages)[0]).toBe('rejected');
      } catch (error) {
        expect(error).toMatchObject({ name: 'ServiceError', sqlstate: expect.stringMatching(/^(08P01|28000|0A000)$/) });
      }
    }
  });
});

/** One attempt to log in to a real Postgres, byte by byte. */
class PostgresLogin {
  readonly #reader = new MessageReader(backendFrames());
  readonly #socket: Socket;

  constructor() {
    const { host, port, user } = inject('cluster');
    this.#socket = connect(`${host}/.s.PGSQL.${port}`);
    const parameters = Buffer.from(`\0\x03\0\0user\0${user}\0\0`, 'latin1');
    this.#socket.write(Buffer.concat([int32(parameters.length + 4), parameters]));
  }

  async refusal(messages: readonly string[]): Promise<[sqlstate: string, message: string, detail?: string]> {
    try {
      await this.#read();
      let nonce = '';
      for (const [i, message] of messages.entries()) {
        const data = Buffer.from(message.replace('{nonce}', nonce));
        this.#send(i === 0 ? Buffer.concat([Buffer.from('SCRAM-SHA-256\0'), int32(data.length), data]) : data);
        const reply = await this.#read();
        if (reply.type === BackendType.ErrorResponse) {
          const { code, message, detail } = decodeErrorFields(reply.body);
          return detail === undefined ? [code, message] : [code, message, detail];
        }
        nonce = /r=([^,]*)/.exec(reply.body.toString('latin1'))?.[1] ?? '';
      }
      throw new Error('Postgres was content');
    } finally {
      this.#socket.destroy();
    }
  }

  #send(body: Buffer): void {
    this.#socket.write(Buffer.concat([Buffer.from('p'), int32(body.length + 4), body]));
  }

  async #read(): Promise<Message> {
    for (let message = this.#reader.next(); ; message = this.#reader.next()) {
      if (message !== undefined) return message;
      const [chunk] = await once(this.#socket, 'data');
      this.#reader.push(chunk);
    }
  }
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}
