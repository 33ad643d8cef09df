import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { Button } from './button.tsx';

export interface DialogProps {
  readonly title: string;
  readonly hideTitle?: boolean;
  readonly class?: string;
  /** Undefined: it cannot be closed. */
  readonly onClose?: () => void;
  readonly children: ComponentChildren;
}

const FIELD = ':is(input:not([type=hidden]), textarea, select):not(:disabled)';

/** Over everything else, until it is answered. The browser keeps the focus in it, and gives it back. */
export function Dialog({ title, hideTitle = false, onClose, children, ...props }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Not a passive effect: those are cleaned up when the element has left the document, and then the focus is not given back.
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    // By itself the browser takes the first button, which closes it.
    element?.querySelector<HTMLElement>(FIELD)?.focus();
    return () => element?.close();
  }, []);
  // The second Escape in a row closes it whatever `cancel` says. @see https://html.spec.whatwg.org/multipage/interaction.html#close-watcher
  const onClosed = () => {
    if (!dialog.current?.isConnected) return;
    if (onClose === undefined) dialog.current.showModal();
    else onClose();
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it
    <dialog
      ref={dialog}
      class={`dialog ${props.class ?? ''}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onClose={onClosed}
      onClick={({ target }) => target === dialog.current && onClose?.()}
    >
      <div class="dialog-content">
        <header class={hideTitle ? 'unseen' : undefined}>
          <h2 id={id}>{title}</h2>
          {onClose !== undefined && !hideTitle && <Button kind="quiet" icon="close" label="Close" onClick={onClose} />}
        </header>
        {children}
      </div>
    </dialog>
  );
}

export interface ConfirmationProps {
  readonly title: string;
  /** What is going to happen, in a verb: `Drop the table`. */
  readonly action: string;
  /** The other button: `Cancel`, unless the action is to cancel something. */
  readonly dismissal?: string;
  readonly isDangerous?: boolean;
  readonly isBusy?: boolean;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** Asks before something that cannot be undone. */
export function Confirmation({ title, action, dismissal = 'Cancel', isDangerous = false, ...props }: ConfirmationProps) {
  const { isBusy = false, onConfirm, onClose, children } = props;
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      <footer>
        <Button onClick={onClose}>{dismissal}</Button>
        <Button kind={isDangerous ? 'danger' : 'primary'} isBusy={isBusy} onClick={onConfirm}>
          {action}
        </Button>
      </footer>
    </Dialog>
  );
}
