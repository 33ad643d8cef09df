import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, inject, test } from 'vitest';
import { Recording } from '../conversations/record.ts';
import { hold } from '../conversations/runner.ts';
import { readScript } from '../conversations/script.ts';
import { createPlainTarget, type Target } from '../conversations/target.ts';

const folder = fileURLToPath(new URL('../conversations/scripts', import.meta.url));
const conversations = readdirSync(folder)
  .filter((file) => file.endsWith('.conv'))
  .flatMap((file) => readScript(join(folder, file)));

const plain = await createPlainTarget(inject('cluster'), `conversations_${randomBytes(4).toString('hex')}`);
afterAll(() => plain.drop());

// RECORD=1 writes what plain PostgreSQL answers in place of lines `A< ?`.
const recording = process.env.RECORD ? new Recording(folder) : undefined;
afterAll(() => recording?.save());

function holdAll(target: Target): void {
  for (const conversation of conversations) {
    if (conversation.version > target.version || conversation.backends > target.backends) continue;
    test(`${conversation.file}: ${conversation.title}`, () => hold(conversation, target, recording?.record));
  }
}

describe('plain PostgreSQL', () => holdAll(plain));
