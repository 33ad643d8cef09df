import { formatCount, formatDuration } from '../../../format.ts';
import { Icon } from '../../../parts/icon.tsx';
import type { PlanNode } from './read-plan.ts';

/** From this part of the whole on, a node is marked. */
const HOT_SHARE = 0.3;
const WARM_SHARE = 0.1;

/** Each node with its children below it. */
export function PlanTree({ root }: { readonly root: PlanNode }) {
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
