(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const seen = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = color => {
    const [r, g, b] = color.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = node => {
    const layers = [];
    const box = node.getBoundingClientRect();
    // What lies below it in the picture, which need not be what it is in.
    const below = document.elementsFromPoint(box.x + Math.min(3, box.width / 2), box.y + box.height / 2);
    for (const each of [node, ...below.slice(below.indexOf(node) + 1)]) {
      const color = seen(getComputedStyle(each).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), seen(getComputedStyle(document.body).backgroundColor));
  };
  const found = [];
  for (const node of document.querySelectorAll("main *")) {
    const text = [...node.childNodes].filter(each => each.nodeType === 3).map(each => each.textContent.trim()).join("");
    if (!text || !node.checkVisibility()) continue;
    node.scrollIntoView({block: "center"});
    const style = getComputedStyle(node), back = ground(node);
    const ink = over(seen(node instanceof SVGElement ? style.fill : style.color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), text.slice(0, 40), node.className.baseVal ?? node.className]);
  }
  return found;
})()
