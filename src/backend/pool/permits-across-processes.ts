/** Counts the backend sessions of several processes together. */
export interface BackendPermits {
  /**
   * Waits until one more session may be opened.
   * @param isWanted whether somebody still waits for a session
   * @returns whether one may be opened; false when nobody waits any more
   */
  acquire(organizationId: string, isWanted: () => boolean): Promise<boolean>;
  /** A session has been closed, or was not opened after all. */
  release(organizationId: string): void;
}
