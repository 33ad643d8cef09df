import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type Installation, makeInstallation, type PosternProcess } from '../../support/process.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';
import { testVariables } from '../../support/service.ts';
import { Attacker } from './attacker.ts';
import type { Waits } from './bystander.ts';

const BUILT = fileURLToPath(new URL('../../../dist/test/attacks/stalls/', import.meta.url));

/** How long others were kept waiting, in milliseconds. */
export interface Stall {
  /** Processor time of the event loop's longest turn: whatever else the machine does, it is as it is. */
  readonly turn: number;
  /** What another organization waited at most, by the clock. */
  readonly waits: Waits;
}

/** A service in a process of its own, an organization that attacks it, and another one that is served meanwhile. */
export class StallScene {
  readonly attacker: Attacker;
  readonly #installation: Installation;
  readonly #scratch: Scratch;
  readonly #socket: string;
  readonly #bystander: ChildProcess;

  private constructor(installation: Installation, scratch: Scratch, socket: string, bystander: ChildProcess, attacker: Attacker) {
    this.#installation = installation;
    this.#scratch = scratch;
    this.#socket = socket;
    this.#bystander = bystander;
    this.attacker = attacker;
  }

  static async open(kind: 'database' | 'schema'): Promise<StallScene> {
    const longestTurn = join(BUILT, 'longest-turn.js');
    if (!existsSync(longestTurn)) throw new Error(`${longestTurn} is not there: npm run build`);
    const scratch = await makeScratch();
    const socket = join(scratch.path, 'longest-turn');
    const installation = await makeInstallation();
    const postern = await installation.start({
      ...testVariables(),
      POSTERN_PLACEMENT: kind,
      NODE_OPTIONS: `--import ${pathToFileURL(longestTurn)}`,
      LONGEST_TURN_SOCKET: socket,
    });
    const attacker = new Attacker(postern, await postern.signUp('Attacker'));
    return new StallScene(installation, scratch, socket, await startBystander(postern), attacker);
  }

  /** How long others wait while this goes on. */
  async during(work: () => Promise<unknown>): Promise<Stall> {
    await this.#read();
    await work();
    return this.#read();
  }

  /** How long they wait where there is nobody else. */
  idle(forMs: number): Promise<Stall> {
    return this.during(() => pause(forMs));
  }

  async #read(): Promise<Stall> {
    const [turn, waits] = await Promise.all([this.#longestTurn(), this.#longestWaits()]);
    return { turn, waits };
  }

  async #longestTurn(): Promise<number> {
    const socket = connect(this.#socket).setEncoding('latin1');
    const [text] = await once(socket, 'data');
    socket.destroy();
    return Number(text);
  }

  async #longestWaits(): Promise<Waits> {
    const told = once(this.#bystander, 'message');
    this.#bystander.send('read');
    const [waits] = await told;
    return waits as Waits;
  }

  async close(): Promise<void> {
    this.#bystander.kill();
    await this.#installation.remove();
    await this.#scratch.remove();
  }
}

async function startBystander(postern: PosternProcess): Promise<ChildProcess> {
  const { id, apiKey } = await postern.signUp('Bystander');
  const child = fork(join(BUILT, 'bystander.js'), [postern.httpUrl, String(postern.wirePort), id, apiKey], { execArgv: [] });
  await once(child, 'message');
  return child;
}

export const longestOf = ({ waits }: Stall): number => Math.max(waits.query, waits.login, waits.health);
