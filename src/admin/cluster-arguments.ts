import type { Placement } from '../catalog/organization.ts';
import { isSecretSource } from '../config.ts';
import type { AddedCluster } from './clusters.ts';
import { UsageError } from './usage-error.ts';

/** As they are written. */
export interface ClusterOptions {
  readonly placement?: string;
  readonly weight?: string;
  readonly cap?: string;
}

const WEIGHT_MAX = 1_000;
const CAP_MAX = 10_000_000;

/** @throws UsageError */
export function clusterToAdd(
  name: string,
  urlSource: string,
  { placement = 'database,schema', weight = '1', cap }: ClusterOptions,
): AddedCluster {
  if (!/^[a-z][a-z0-9_-]{0,29}$/.test(name))
    throw new UsageError('the name of a cluster has up to 30 of a-z, 0-9, _ and -, a letter first');
  if (!isSecretSource(urlSource)) {
    throw new UsageError('the URL is given as env:NAME or file:/path, not itself: it has a password, and others see command lines');
  }
  return {
    name,
    urlSource,
    placements: placementsOf(placement),
    weight: whole('--weight', weight, 1, WEIGHT_MAX),
    cap: cap === undefined ? null : whole('--cap', cap, 0, CAP_MAX),
  };
}

function placementsOf(text: string): Placement['kind'][] {
  return text.split(',').map((kind) => {
    if (kind !== 'database' && kind !== 'schema') throw new UsageError('--placement is database, schema or both, separated by a comma');
    return kind;
  });
}

function whole(option: string, text: string, min: number, max: number): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new UsageError(`${option} is a whole number from ${min} to ${max}`);
}
