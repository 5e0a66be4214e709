/** Scrolls a frame, but not the page, to show a part of it. Coordinates are the frame's. */
export function reveal(frame: HTMLElement, top: number, height: number, left = 0, width = 0): void {
  if (top < frame.scrollTop || top + height > frame.scrollTop + frame.clientHeight)
    frame.scrollTop = top - (frame.clientHeight - height) / 2;
  if (left < frame.scrollLeft || left + width > frame.scrollLeft + frame.clientWidth)
    frame.scrollLeft = left - (frame.clientWidth - width) / 2;
}
