import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type BackendConnection, BusyPoll } from '../../../src/backend/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { openScriptedBackend, type ScriptedBackend } from '../../support/scripted-backend.ts';

const TERMINATE = 'X\0\0\0\x04';

let server: ScriptedBackend;
let backend: BackendConnection;
beforeEach(async () => {
  server = await openScriptedBackend();
  ({ backend } = server);
});
afterEach(() => server.close());

/** What the connection has ended with. */
function failure(): Promise<Error | undefined> {
  return new Promise((resolve) => {
    backend.receiver = { data() {}, drain() {}, closed: resolve };
  });
}

describe('what is to be written soon', () => {
  const LARGE = Buffer.alloc(100_000, 'L');

  it('goes out in order with what is written at once', async () => {
    backend.writeSoon(Buffer.from('1'));
    backend.writeSoon(Buffer.from('2'));
    backend.write(Buffer.from('3'));
    backend.writeSoon(Buffer.from('4'));
    backend.writeSoon(LARGE);
    backend.writeSoon(Buffer.from('5'));
    await eventually('all is there', () => server.heard.length >= LARGE.length + 5);
    expect(server.heard).toBe(`1234${LARGE.toString('latin1')}5`);
  });

  it('goes out ahead of Terminate', async () => {
    backend.writeSoon(Buffer.from('soon'));
    backend.end();
    expect(await failure()).toBeUndefined();
    expect(server.heard).toBe(`soon${TERMINATE}`);
  });

  it('is forgotten with a connection that is dropped', async () => {
    backend.writeSoon(Buffer.from('soon'));
    backend.destroy();
    expect(await failure()).toBeUndefined();
  });
});

describe('a cancel request', () => {
  it('is over when the server has closed its connection', async () => {
    let isOver = false;
    const canceled = backend.cancel().then(() => {
      isOver = true;
    });
    await eventually('it is there', () => server.cancels.length === 1);
    expect(isOver).toBe(false);
    server.cancels[0]?.end();
    await canceled;
    expect(backend.session.retired).toBe(false);
  });

  it('that the server does not accept is waited for up to the limit, and its session is retired (X10)', async () => {
    await backend.cancel(50);
    expect(backend.session.retired).toBe(true);
  });
});

describe('a connection that is dropped', () => {
  it('sends nothing more, not even the rest of a message, and is gone when the server ends the session', async () => {
    backend.destroy();
    backend.writeSoon(Buffer.from('late'));
    backend.write(Buffer.from('later'));
    await backend.gone;
    expect([server.heard, backend.isGone]).toEqual(['', true]);
  });

  it('is over for its holder at once, and stays for as long as the server keeps the session', async () => {
    server.holdOpen();
    backend.destroy();
    expect(await failure()).toBeUndefined();
    expect([backend.closed, backend.isGone]).toEqual([true, false]);
    backend.forget();
    await backend.gone;
  });
});

describe('what is read', () => {
  /** Keeps what it is given until it is told to let go, and finds out what has become of it. */
  function keeper() {
    const kept: { readonly chunk: Buffer; readonly copy: Buffer }[] = [];
    const receiver = {
      kept,
      holdsChunk: true,
      bytes: 0,
      data(chunk: Buffer) {
        receiver.bytes += chunk.length;
        kept.push({ chunk, copy: Buffer.from(chunk) });
      },
      drain() {},
      closed() {},
    };
    return receiver;
  }

  const said = async (receiver: { readonly bytes: number }, bytes: Buffer) => {
    const before = receiver.bytes;
    server.say(bytes);
    await eventually('all is there', () => receiver.bytes - before === bytes.length);
  };
  const memories = ({ kept }: ReturnType<typeof keeper>) => new Set(kept.map(({ chunk }) => chunk.buffer)).size;
  const isIntact = ({ kept }: ReturnType<typeof keeper>) => kept.every(({ chunk, copy }) => chunk.equals(copy));

  it('stays as it is for as long as it is needed, in little memory', async () => {
    const slow = keeper();
    backend.receiver = slow;
    for (let round = 0; round < 30; round += 1) await said(slow, Buffer.alloc(1_000, round));
    await said(slow, Buffer.alloc(300_000, 'L'));
    expect(isIntact(slow)).toBe(true);
    expect(memories(slow)).toBeLessThan(20);
  });

  it('stays as it is while the connection has another receiver', async () => {
    const [first, second, third] = [keeper(), keeper(), keeper()];
    backend.receiver = first;
    await said(first, Buffer.alloc(1_000, 'a'));
    second.holdsChunk = false;
    backend.receiver = second;
    for (let round = 0; round < 10; round += 1) await said(second, Buffer.alloc(20_000, 'b'));
    expect(isIntact(first)).toBe(true);
    backend.receiver = third;
    await said(third, Buffer.alloc(1_000, 'c'));
    third.holdsChunk = false;
    await said(third, Buffer.alloc(100_000, 'd'));
    expect(isIntact(first)).toBe(true);
  });

  it('is read into the same memory once it is not needed', async () => {
    const quick = keeper();
    backend.receiver = quick;
    await said(quick, Buffer.alloc(1_000, 'a'));
    quick.holdsChunk = false;
    for (let round = 0; round < 10; round += 1) await said(quick, Buffer.alloc(1_000, 'b'));
    expect(memories(quick)).toBe(1);
    expect(new Set(quick.kept.slice(2).map(({ chunk }) => chunk.byteOffset))).toEqual(new Set([0]));
  });
});

describe('what a session is asked, and what it answers', () => {
  let told: string[];
  beforeEach(() => {
    told = [];
    const busyPoll = new BusyPoll(0);
    for (const event of ['asked', 'contended', 'answered'] as const) vi.spyOn(busyPoll, event).mockImplementation(() => told.push(event));
    backend.busyPoll = busyPoll;
  });

  it('is reported once', async () => {
    let bytes = 0;
    backend.receiver = {
      data(chunk) {
        bytes += chunk.length;
      },
      drain() {},
      closed() {},
    };
    backend.write(Buffer.from('1'));
    await eventually('it has come', () => server.heard === '1');
    server.say('one');
    await eventually('it has answered', () => bytes === 3);
    server.say('more');
    await eventually('it has gone on', () => bytes === 7);
    backend.write(Buffer.from('2'));
    expect(told).toEqual(['asked', 'answered', 'asked']);
  });

  it('is contended when it is several things', async () => {
    backend.write(Buffer.from('1'));
    backend.write(Buffer.from('2'));
    expect(told).toEqual(['asked', 'contended']);
    await eventually('both have come', () => server.heard === '12');
    server.say('one');
    await eventually('it has answered', () => told.length === 3);
    backend.writeSoon(Buffer.from('3'));
    backend.writeSoon(Buffer.from('4'));
    await eventually('both have come', () => server.heard === '1234');
    expect(told).toEqual(['asked', 'contended', 'answered', 'asked', 'contended']);
  });

  it('is answered by a loss', async () => {
    backend.write(Buffer.from('1'));
    backend.destroy();
    await failure();
    expect(told).toEqual(['asked', 'answered']);
  });

  it('is not notified of a loss that was not waited for, nor of later requests', async () => {
    backend.destroy();
    await failure();
    backend.write(Buffer.from('1'));
    expect(told).toEqual([]);
  });
});
