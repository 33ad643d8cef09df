import { afterEach, beforeEach, expect, it } from 'vitest';
import { discardState } from '../../../src/backend/own-request.ts';
import { eventually } from '../../support/eventually.ts';
import { queryMessage } from '../../support/raw-session.ts';
import { openScriptedBackend, type ScriptedBackend } from '../../support/scripted-backend.ts';

const READY = 'Z\0\0\0\x05I';
const DISCARDED = `C\0\0\0\x10DISCARD ALL\0${READY}`;
const EMPTY = `I\0\0\0\x04${READY}`;
const TOO_LATE = `E\0\0\0\x19SERROR\0C57014\0Mlate\0\0${READY}`;

let server: ScriptedBackend;
beforeEach(async () => {
  server = await openScriptedBackend();
});
afterEach(() => server.close());

/** Cleans the session, whose server says one thing after another. */
async function discard(...answers: string[]): Promise<boolean> {
  let isOver = false;
  const discarded = discardState(server.backend).finally(() => {
    isOver = true;
  });
  const asked = Buffer.concat([queryMessage('DISCARD ALL'), queryMessage('')]).toString('latin1');
  await eventually('it has been asked', () => server.heard === asked);
  for (const answer of answers) {
    expect(isOver).toBe(false);
    server.say(answer);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return discarded;
}

it('a session that has answered twice is clean', async () => {
  expect(await discard(DISCARDED, EMPTY)).toBe(true);
});

it('a timeout that expires as the reset ends fails only the empty statement after it', async () => {
  expect(await discard(DISCARDED, TOO_LATE)).toBe(false);
});

it('a session that has not been cleaned is not used again', async () => {
  expect(await discard(TOO_LATE, EMPTY)).toBe(false);
});

it('a session that is lost meanwhile is not used again', async () => {
  const discarded = discardState(server.backend);
  server.backend.destroy();
  expect(await discarded).toBe(false);
});
