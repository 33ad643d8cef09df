import type { RefObject } from 'preact';
import { useCallback, useEffect, useRef } from 'preact/hooks';

interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
}

const [SCALE_MIN, SCALE_MAX] = [0.04, 2.5];
const FIT_MAX = 1.1;
const MARGIN_PX = 24;
const STEP = 1.25;
const PAN_PX = 60;
/** Below it, what is written in the boxes cannot be read, and is not drawn. */
const FAR_SCALE = 0.38;
/** A pointer that moves less clicks. */
const CLICK_PX = 4;

export interface Viewport {
  readonly area: RefObject<HTMLDivElement | null>;
  readonly content: RefObject<SVGGElement | null>;
  readonly zoom: (factor: number) => void;
  readonly showAll: () => void;
  readonly onKeyDown: (event: KeyboardEvent) => void;
}

export const zoomStep = STEP;

/** Moves and scales an SVG group: by dragging, pinching, the wheel and keys. Nothing is drawn anew for it. */
export function useViewport(width: number, height: number): Viewport {
  const area = useRef<HTMLDivElement>(null);
  const content = useRef<SVGGElement>(null);
  const view = useRef<View>({ x: 0, y: 0, scale: 1 });
  const set = useCallback((next: View) => {
    view.current = next;
    content.current?.setAttribute('transform', `translate(${next.x},${next.y}) scale(${next.scale})`);
    area.current?.classList.toggle('far', next.scale < FAR_SCALE);
  }, []);
  const showAll = useCallback(() => {
    const { clientWidth = 0, clientHeight = 0 } = area.current ?? {};
    if (clientWidth === 0 || width === 0) return;
    const wanted = Math.min((clientWidth - 2 * MARGIN_PX) / width, (clientHeight - 2 * MARGIN_PX) / height, FIT_MAX);
    const scale = Math.max(wanted, SCALE_MIN);
    set({ scale, x: (clientWidth - width * scale) / 2, y: (clientHeight - height * scale) / 2 });
  }, [width, height]);
  /** @param at what stays where it is; undefined: the middle */
  const zoom = useCallback((factor: number, at?: { readonly x: number; readonly y: number }) => {
    const { clientWidth = 0, clientHeight = 0 } = area.current ?? {};
    const { x, y, scale } = view.current;
    const next = Math.min(Math.max(scale * factor, SCALE_MIN), SCALE_MAX);
    const { x: atX, y: atY } = at ?? { x: clientWidth / 2, y: clientHeight / 2 };
    set({ scale: next, x: atX - ((atX - x) * next) / scale, y: atY - ((atY - y) * next) / scale });
  }, []);
  const pan = useCallback((byX: number, byY: number) => {
    const { x, y, scale } = view.current;
    set({ x: x + byX, y: y + byY, scale });
  }, []);
  useEffect(() => {
    showAll();
    const observer = new ResizeObserver(showAll);
    if (area.current !== null) observer.observe(area.current);
    return () => observer.disconnect();
  }, [showAll]);
  useEffect(() => (area.current === null ? undefined : listen(area.current, zoom, pan)), []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys: Readonly<Record<string, () => void>> = {
      ArrowLeft: () => pan(PAN_PX, 0),
      ArrowRight: () => pan(-PAN_PX, 0),
      ArrowUp: () => pan(0, PAN_PX),
      ArrowDown: () => pan(0, -PAN_PX),
      '+': () => zoom(STEP),
      '=': () => zoom(STEP),
      '-': () => zoom(1 / STEP),
      '0': showAll,
    };
    const act = keys[event.key];
    if (act === undefined) return;
    act();
    event.preventDefault();
  };
  return { area, content, zoom, showAll, onKeyDown };
}

type Zoom = (factor: number, at: { readonly x: number; readonly y: number }) => void;
type Pan = (x: number, y: number) => void;

/** Pointers and the wheel. @returns what ends it */
function listen(area: HTMLElement, zoom: Zoom, pan: Pan): () => void {
  const pointers = new Map<number, { x: number; y: number }>();
  let moved = 0;
  const place = (event: MouseEvent) => {
    const { left, top } = area.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    if (pointers.size === 0) moved = 0;
    pointers.set(event.pointerId, place(event));
  };
  const move = (event: PointerEvent) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) return;
    const now = place(event);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    moved += Math.hypot(now.x - before.x, now.y - before.y);
    // Only then, because what is captured is not clicked.
    if (moved > CLICK_PX) area.setPointerCapture(event.pointerId);
    if (other === undefined) pan(now.x - before.x, now.y - before.y);
    else zoom(distance(now, other) / Math.max(distance(before, other), 1), other);
    pointers.set(event.pointerId, now);
  };
  const up = (event: PointerEvent) => pointers.delete(event.pointerId);
  const click = (event: MouseEvent) => moved > CLICK_PX && event.preventDefault();
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
    zoom(Math.exp(-Math.min(Math.max(pixels, -240), 240) / 400), place(event));
  };
  const drag = (event: Event) => event.preventDefault();
  const ended = new AbortController();
  const { signal } = ended;
  area.addEventListener('pointerdown', down, { signal });
  area.addEventListener('pointermove', move, { signal });
  area.addEventListener('pointerup', up, { signal });
  area.addEventListener('pointercancel', up, { signal });
  area.addEventListener('click', click, { signal, capture: true });
  area.addEventListener('dragstart', drag, { signal });
  area.addEventListener('wheel', wheel, { signal, passive: false });
  return () => ended.abort();
}

function distance(one: { x: number; y: number }, other: { x: number; y: number }): number {
  return Math.hypot(one.x - other.x, one.y - other.y);
}
