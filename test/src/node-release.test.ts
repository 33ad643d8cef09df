import { expect, it } from 'vitest';
import { endOfSupport } from '../../src/node-release.ts';

it('a start on a Node without security fixes says so', () => {
  expect(endOfSupport('20.20.2')).toBe('Node 20 gets no security fixes any more (20 since April 2026): Node 24 is the one to use');
  expect(endOfSupport('21.0.0')).toContain('Node 21 gets no security fixes');
});

it('a start on a Node with security fixes says nothing of it', () => {
  for (const version of ['22.23.0', '24.21.0', '26.0.0']) expect(endOfSupport(version)).toBeUndefined();
});
