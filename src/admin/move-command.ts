import type { Placement } from '../catalog/organization.ts';
import type { MoveOptions, Mover } from '../moving/mover.ts';
import type { Origin } from '../observation.ts';
import { UsageError } from './usage-error.ts';

/** The options of `org move`. */
export interface MoveCommandOptions {
  readonly to?: string;
  readonly placement?: string;
  readonly pause?: string;
  readonly force?: boolean;
  readonly replicate?: boolean;
  readonly finish?: boolean;
  readonly abort?: boolean;
}

/** What an operator wants. */
export type MoveCommand = 'finish' | 'abort' | MoveOptions;

const PAUSE_S = 60;
const PAUSE_MAX_S = 3_600;

/** @returns undefined if the options do not go together @throws UsageError */
export function parseMoveCommand({ to, placement, pause, force, replicate, finish, abort }: MoveCommandOptions): MoveCommand | undefined {
  const moves = [to, placement, pause, force, replicate].filter((option) => option !== undefined);
  if (finish === true || abort === true) return moves.length > 0 || finish === abort ? undefined : finish ? 'finish' : 'abort';
  if (to === undefined && placement === undefined) return undefined;
  const pauseS = Number(/^[1-9]\d{0,4}$/.exec(pause ?? String(PAUSE_S))?.[0]);
  if (!(pauseS <= PAUSE_MAX_S)) throw new UsageError(`--pause is a number of seconds, at most ${PAUSE_MAX_S}`);
  return { cluster: to, kind: kindOf(placement), force: force === true, replicate: replicate === true, pauseMs: 1_000 * pauseS };
}

function kindOf(placement: string | undefined): Placement['kind'] | undefined {
  if (placement === undefined || placement === 'database' || placement === 'schema') return placement;
  throw new UsageError('--placement is database or schema');
}

/** @returns what to print */
export async function runMoveCommand(mover: Mover, id: string, command: MoveCommand, origin: Origin): Promise<string> {
  if (command === 'finish') {
    await mover.finish(id, origin);
    return `the former copy of ${id} is removed`;
  }
  if (command === 'abort') {
    await mover.abort(id);
    return `${id} stays where it is; nothing of the move is left`;
  }
  const { organization, tables, rows, pausedMs, firstPauseMs, obstacle, isOpen } = await mover.move(id, command, origin);
  const { kind, cluster } = organization.placement;
  const waits = [firstPauseMs, pausedMs].flatMap((ms) => (ms === undefined ? [] : Math.ceil(ms)));
  const all = obstacle === undefined ? '' : `all rows were copied meanwhile: ${obstacle}\n`;
  return `${id} is in a ${kind} of its own on ${cluster}: ${rows} rows in ${tables} tables are the same there; its clients waited ${waits.join(' and ')} ms
${all}its former copy is kept until: postern admin org move ${id} --finish${isOpen ? OPEN : ''}`;
}

const OPEN = `
its roles on the former server could not be closed: see that every process of the service answers, and finish the move soon`;
