import { formatCount, formatDuration } from '../../format.ts';
import { CopyButton } from '../../parts/copying.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Notice } from '../../parts/notice.tsx';
import { type Plan, type PlanNode, readPlan } from './read-plan.ts';
import type { Run } from './run-request.ts';

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

/** From this part of the whole on, a node is marked. */
const HOT_SHARE = 0.3;
const WARM_SHARE = 0.1;

/** Each node with its children below it. */
function PlanTree({ root }: { readonly root: PlanNode }) {
  return (
    <ul class="plan-tree">
      <Node node={root} />
    </ul>
  );
}

function Node({ node }: { readonly node: PlanNode }) {
  const { title, target, role, facts, warnings, children, share, loops } = node;
  const heat = share >= HOT_SHARE ? 'hot' : share >= WARM_SHARE ? 'warm' : '';
  const isIdle = loops === 0;
  return (
    <li class={`${heat} ${isIdle ? 'idle' : ''}`}>
      <details class="plan-node">
        <summary>
          <span class="plan-what">
            {role !== '' && <span class="tag">{role}</span>} <strong>{title}</strong>
            {target !== '' && <span class="plan-target"> {target}</span>}
            {warnings.length > 0 && (
              <span class="warning" title={warnings.join('\n')}>
                <Icon name="warning" />
                <span class="unseen">{warnings.join(', ')}</span>
              </span>
            )}
          </span>
          <Rows node={node} />
          <Time node={node} />
        </summary>
        <dl>
          {warnings.map((text) => (
            <div key={text} class="warning">
              <dt>Warning</dt>
              <dd>{text}</dd>
            </div>
          ))}
          {facts.map(([term, text]) => (
            <div key={term}>
              <dt>{term}</dt>
              <dd class="mono">{text}</dd>
            </div>
          ))}
          <div>
            <dt>Cost</dt>
            <dd class="number">{formatCount(Math.round(node.cost * 100) / 100)}</dd>
          </div>
          {loops !== undefined && loops > 1 && (
            <div>
              <dt>Loops</dt>
              <dd class="number">{formatCount(loops)}; rows are those of one</dd>
            </div>
          )}
        </dl>
      </details>
      {children.length > 0 && (
        <ul>
          {children.map((child) => (
            <Node key={child.id} node={child} />
          ))}
        </ul>
      )}
    </li>
  );
}

/** Estimated : real. */
function Rows({ node: { estimatedRows, actualRows, loops, isMisestimated } }: { readonly node: PlanNode }) {
  if (actualRows === undefined) {
    return (
      <span class="plan-rows number">
        {formatCount(estimatedRows)} <span class="muted">rows</span>
      </span>
    );
  }
  if (loops === 0) return <span class="plan-rows muted">never executed</span>;
  return (
    <span class="plan-rows number" title="Rows, estimated : real">
      <span class={isMisestimated ? 'warning' : ''}>
        {formatCount(estimatedRows)} : {formatCount(actualRows)}
      </span>{' '}
      <span class="muted">rows{loops !== undefined && loops > 1 ? ` × ${formatCount(loops)}` : ''}</span>
    </span>
  );
}

/** The bar is the node's own part of the whole, without its children. */
function Time({ node: { share, selfMs, totalMs, cost } }: { readonly node: PlanNode }) {
  const percent = Math.round(share * 100);
  const text = totalMs === undefined ? `cost ${formatCount(Math.round(cost))}` : formatDuration(totalMs);
  const title = selfMs === undefined ? 'Of all cost' : `Itself ${formatDuration(selfMs)}, with those below ${formatDuration(totalMs ?? 0)}`;
  return (
    <span class="plan-time number" title={title}>
      <span class="plan-bar" aria-hidden="true">
        <span style={{ width: `${percent}%` }} />
      </span>
      <span class="plan-percent">{percent} %</span>
      <span class="plan-ms">{text}</span>
    </span>
  );
}
