import { formatDuration } from '../../../format.ts';
import { CopyButton } from '../../../parts/copying/copy-button.tsx';
import { Notice } from '../../../parts/notice.tsx';
import type { Run } from '../run/run-request-and-result.ts';
import { PlanTree } from './plan-tree.tsx';
import { type Plan, type PlanNode, readPlan } from './read-plan.ts';

const WARNINGS_MAX = 8;
/** Compiling is worth a word where it takes this part of the time. */
const JIT_SHARE = 0.3;

/** The plan of a statement, and with ANALYZE where its time went. */
export function PlanView({ run }: { readonly run: Run }) {
  const plan = readPlan(run.plan);
  if (plan === undefined) return <Notice tone="info">PostgreSQL has no plan for this statement: it runs as it stands.</Notice>;
  const isAnalyzed = run.request.kind === 'analyze';
  return (
    <div class="sql-plan">
      <div class="sql-status">
        {plan.executionMs !== undefined && (
          <span>
            Execution <b class="number">{formatDuration(plan.executionMs)}</b>
          </span>
        )}
        {plan.planningMs !== undefined && (
          <span>
            Planning <b class="number">{formatDuration(plan.planningMs)}</b>
          </span>
        )}
        <span class="muted">
          {isAnalyzed ? 'It ran and was rolled back: nothing is kept.' : 'An estimate: nothing has run. Analyze measures it.'}
        </span>
        <CopyButton text={() => JSON.stringify(run.plan, undefined, 2)} label="Copy as JSON" />
      </div>
      <Findings plan={plan} />
      <PlanTree root={plan.root} />
      {plan.triggers.length > 0 && (
        <ul class="sql-triggers">
          {plan.triggers.map(({ name, ms, calls }) => (
            <li key={name}>
              Trigger <code>{name}</code>: <span class="number">{formatDuration(ms)}</span>, {calls} calls
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Findings({ plan }: { readonly plan: Plan }) {
  const found = findingsIn(plan.root);
  const { jitMs, executionMs = 0 } = plan;
  if (jitMs > executionMs * JIT_SHARE && jitMs > 0)
    found.push(['JIT', `compiling expressions took ${formatDuration(jitMs)} of ${formatDuration(executionMs)}: set jit = off may help`]);
  if (found.length === 0) return null;
  return (
    <Notice tone="warning">
      <ul class="sql-warnings">
        {found.slice(0, WARNINGS_MAX).map(([where, text]) => (
          <li key={`${where} ${text}`}>
            <strong>{where}</strong> {text}.
          </li>
        ))}
        {found.length > WARNINGS_MAX && <li class="muted">And {found.length - WARNINGS_MAX} more in the tree.</li>}
      </ul>
    </Notice>
  );
}

function findingsIn({ title, target, warnings, children }: PlanNode): (readonly [string, string])[] {
  const mine = warnings.map((text) => [`${title}${target === '' ? '' : ` on ${target}`}:`, text] as const);
  return [...mine, ...children.flatMap(findingsIn)];
}
