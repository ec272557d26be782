# SPDX-License-Identifier: Apache-2.0
"""The page of `zoomr-decode --report` in a headless Chromium: what it shows, by mouse and keyboard, colours, speed; and
that of `zoomr-replay --report`.

    python3 report_page_test.py PROGRAM REPORT LEDGER REPLAY    REPORT: the folder of page.html

Without Chromium nothing is tested, and it says so with status 77.
"""
import array
import base64
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest

import browser

PROGRAM, REPORT, LEDGER, REPLAY = sys.argv[1:5]
POLICIES = ["full", "zoomr_mass", "zoomr_focus", "window"]
READY = "document.querySelectorAll('article').length > 0 && document.getElementById('where').textContent !== ''"


def large_page(path):
    """16,384 tokens in 24 layers that choose alone, in the page's own files; no model has so much time."""
    dice = random.Random(1)
    tokens, prompt, piece, layers = 16384, 512, 16, 24
    pieces, classes = [-1, -1, -1, 0, -1], []
    for begin in range(0, tokens - piece, piece):
        pieces += [begin, begin + piece, begin + piece, max(0, begin + piece - prompt), begin // piece]
    for _ in range(layers):
        runs = []
        for at in range(1, len(pieces) // 5):
            since, mine, end = pieces[5 * at + 3], [], 0
            column = since
            while len(mine) < 24 and column < tokens - prompt - 600:
                length = dice.randrange(1, 400)
                mine += [column - end, length, dice.choice((2, 3, 7, 7))]
                end = column + length
                column = end + dice.randrange(1, 2000)
            if mine:
                runs += [at, len(mine) // 3, *mine]
        classes.append(runs)
    steps = tokens - prompt
    series = {"stride": 4, "attended": [dice.randrange(10**6) for _ in range(steps // 4)],
              "details": [4096 * i for i in range(steps // 4)]}
    run = {"policy": "large", "options": "", "text": 0, "figures": [["budget", "64"]], "prompt": prompt,
           "tokens": tokens, "steps": steps, "positions": [prompt, steps], "per": "layer", "layers": list(range(layers)),
           "kv_heads": 1, "group": 2, "query_heads": 48, "pieces": pieces, "pinned": [],
           "levels": {"stride": 1, "lanes": list(range(layers)), "classes": classes}, "in_memory": None,
           "choices": {"unit": "share", "stride": 1, "list": [[s, s % layers, 9000, 1, s // 20, 0.5]
                                                              for s in range(0, steps, 8)]}, "series": series}
    write_page(path, [run], [[f" word{t}" if t % 15 else "\n" for t in range(tokens)]])


def small_run(name, words, text, prompt, levels, given=False, pinned=()):
    """A run in two layers of 24 KV heads, over pieces of four tokens.

    levels: of each piece, how many of the 48 lanes read it at each step at which it is closed, and the level
    """
    tokens = len(words)
    steps, pieces = tokens - prompt, [-1, -1, -1, 0, -1]
    classes = [[] for _ in range(48)]
    for begin in range(0, tokens - 4, 4):
        since = max(0, begin + 4 - prompt)
        pieces += [begin, begin + 4, begin + 4, since, begin // 4]
        lanes, level = levels(begin // 4)
        for lane in range(lanes if since < steps else 0):
            classes[lane] += [begin // 4 + 1, 1, since, steps - since, level]
    return {"policy": name, "options": "", "text": text, "given": given, "figures": [["budget", "8"]], "prompt": prompt,
            "tokens": tokens, "steps": steps, "positions": [prompt, steps], "per": "kv_head", "layers": [0, 1],
            "kv_heads": 24, "group": 1, "query_heads": 48, "pieces": pieces, "pinned": list(pinned),
            "levels": {"stride": 1, "lanes": list(range(48)), "classes": classes}, "in_memory": None, "choices": None,
            "series": {"stride": 1, "attended": [48 * 8] * steps}}


def write_page(path, runs, texts):
    data = {"zoomr_report": 1, "title": "made", "command": "none", "runs": runs, "texts": texts}

    def read(name):
        with open(os.path.join(REPORT, name), encoding="utf-8") as file:
            return file.read()

    script = read("page.js")
    digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode()
    html = read("page.html").replace("SCRIPT_HASH", "sha256-" + digest)
    for mark, text in (("/*SCRIPT*/", script), ("/*STYLES*/", read("page.css")), ("/*DATA*/", json.dumps(data))):
        before, after = html.split(mark)
        html = before + text + after
    with open(path, "w", encoding="utf-8") as out:
        out.write(html)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.page = os.path.join(cls.folder.name, "run.html")
        done = subprocess.run(
            [PROGRAM, "--model", os.path.join(LEDGER, "checkpoints", "indexed"), "--delimiters", ";", "--policy",
             ",".join(POLICIES), "--prompt", "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; <go>",
             "--report", cls.page, "--same-text", "--audit", "--json"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        cls.tab = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.tab.close()
        cls.folder.cleanup()

    def setUp(self):
        self.tab.events.clear()
        self.tab.size(1280)
        self.tab.prefer("light")

    def tearDown(self):
        self.assertEqual(self.tab.complaints(), [])
        self.assertEqual([url for url in self.tab.requests() if not url.startswith(("file://", "data:"))], [])
        self.assertLessEqual(len({url for url in self.tab.requests() if url.startswith("file://")}), 1)

    def open(self, path=None):
        self.tab.mouse("mouseMoved", 2, 2)  # where it points at nothing
        self.tab.open(path or self.page, READY)

    def frame(self):
        self.tab.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def where(self):
        self.frame()
        return int(self.tab.run("document.getElementById('where').textContent").split()[0])

    def detail(self, number):
        self.frame()
        return self.tab.run(f"document.querySelectorAll('.detail')[{number}].textContent")

    def place(self, selector, number=0):
        """The middle of an element, scrolled into view."""
        return self.tab.run(f"""(() => {{
            const one = document.querySelectorAll({json.dumps(selector)})[{number}];
            one.scrollIntoView({{block: "center"}});
            const box = one.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height];
        }})()""")

    def pixels(self, canvas):
        """Different colours on a canvas."""
        return self.tab.run(f"""(() => {{
            const one = document.querySelectorAll("canvas")[{canvas}], pen = one.getContext("2d");
            return new Set(new Uint32Array(pen.getImageData(0, 0, one.width, one.height).data.buffer)).size;
        }})()""")

    def test_all_runs_are_shown_with_their_figures_and_the_command(self):
        self.open()
        run = self.tab.run
        self.assertEqual(run("[...document.querySelectorAll('.run h3')].map((one) => one.textContent)"), POLICIES)
        self.assertEqual(run("[...document.querySelectorAll('tbody th')].map((one) => one.textContent)"), POLICIES)
        self.assertIn("captured mass", run("document.getElementById('figures').textContent"))
        self.assertIn("--same-text --audit", run("document.getElementById('command').textContent"))
        text = run("document.querySelectorAll('.text')[1].textContent")
        self.assertIn("<thought> c = a [ @5 ] ;", text)
        self.assertEqual(text, run("data.texts[0].join('')"))
        for i in range(4):
            self.assertGreater(self.pixels(2 * i), 3)
        self.assertEqual(run("document.querySelectorAll('figure').length"), 6)

    def test_the_pointer_moves_one_cursor_in_all_and_a_click_holds_it(self):
        self.open()
        left, top, width, height = self.place(".run .plot", 1)
        self.tab.mouse("mouseMoved", left + width * 0.7, top + 25)  # the second row: the first thought
        moved = self.where()
        self.assertNotEqual(moved, 279)
        said = self.detail(1)
        self.assertIn("Segment 1", said)
        self.assertIn("chosen in all KV heads", said)
        self.assertIn("share of the votes", said)
        self.assertIn("Agreeability", said)
        self.assertEqual(self.tab.run("[...document.querySelectorAll('.text .k3')].length > 0"), True)
        for kind in ("mousePressed", "mouseReleased"):
            self.tab.mouse(kind, left + width * 0.7, top + 25, button="left", clickCount=1)
        self.tab.mouse("mouseMoved", left + width * 0.9, top + 10)
        self.assertEqual(self.where(), moved)
        left, top, width, height = self.place(".chart .plot", 0)
        for kind in ("mousePressed", "mouseReleased"):
            self.tab.mouse(kind, left + width * 0.5, top + 25, button="left", clickCount=1)
        self.assertAlmostEqual(self.where(), 24 + 128, delta=2)
        left, top, width, height = self.place(".text", 1)
        self.tab.mouse("mouseMoved", left + 60, top + height - 20)
        token = self.where()
        self.assertTrue(self.tab.run(f"data.runs[1].prompt <= {token}"))
        self.assertNotEqual(token, 152)

    def test_the_keyboard_reaches_everything(self):
        self.open()
        self.tab.run("document.querySelectorAll('.run .plot')[1].focus()")
        self.tab.key("Home")
        self.assertEqual(self.where(), 24)
        self.tab.key("ArrowRight")
        self.tab.key("ArrowRight", shift=True)
        self.assertEqual(self.where(), 35)
        self.tab.key("ArrowLeft")
        self.assertEqual(self.where(), 34)
        self.tab.key("n")
        changed = self.where()
        self.assertGreater(changed, 34)
        self.tab.key("n")
        self.assertGreater(self.where(), changed)
        self.tab.key("p")
        self.assertEqual(self.where(), changed)
        self.tab.key("End")
        self.assertEqual(self.where(), 279)
        self.tab.key("ArrowUp")
        self.assertIn("Segment 4", self.detail(1))
        self.tab.key("ArrowUp")
        self.assertIn("Segment 3", self.detail(1))
        before = self.tab.run("visible()")
        self.tab.key("+")
        self.frame()
        self.assertLess(self.tab.run("visible()"), before)
        self.tab.key("0")
        self.frame()
        self.assertEqual(self.tab.run("visible()"), before)
        # Tab comes to each of them, in the order of the page
        self.tab.run("document.activeElement.blur()")
        order = []
        for _ in range(60):
            self.tab.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
            order.append(self.tab.run("document.activeElement.id || document.activeElement.className"))
        for name in ("layer", "head", "step", "plot", "text"):
            self.assertIn(name, order)

    def test_layer_head_and_runs_are_chosen(self):
        self.open()
        choose = """(id, value) => { const one = document.getElementById(id); one.value = value;
                                     one.dispatchEvent(new Event("change")); }"""
        whole = self.detail(2)
        self.tab.run(f"({choose})('layer', '1')")
        self.frame()
        self.assertEqual(self.tab.run("views[2].run.lanes.length"), self.tab.run("data.runs[2].kv_heads"))
        self.tab.run(f"({choose})('head', '0')")
        self.frame()
        self.assertEqual(self.tab.run("views[2].run.lanes"), [self.tab.run("data.runs[2].kv_heads")])
        self.tab.run("document.querySelectorAll('#shown input')[0].click()")
        self.frame()
        self.assertEqual(self.tab.run("getComputedStyle(document.querySelector('.run')).display"), "none")
        self.assertIn("KV heads", whole)

    def test_what_is_shown_is_what_the_data_say(self):
        self.open()
        self.assertEqual(self.tab.run("""(() => {
            const run = views[2].run, {columns} = run;  // of each cell from the runs, one lane after the other
            for (const [r, row] of run.rows.entries()) {
              const read = new Array(columns).fill(0), chosen = new Array(columns).fill(0);
              for (const kind of data.runs[2].levels.lanes) {
                const list = data.runs[2].levels.classes[kind];
                for (let at = 0; at < list.length;) {
                  const piece = list[at], runs = list[at + 1];
                  at += 2;
                  for (let i = 0, column = 0; i < runs; ++i, at += 3) {
                    column += list[at];
                    for (let end = column + list[at + 1]; column < end; ++column) {
                      if (piece !== row.id) continue;
                      read[column] += list[at + 2] & 3, chosen[column] += list[at + 2] >> 2;
                    }
                  }
                }
              }
              for (let c = 0; c < columns; ++c) {
                if (run.fine.read[r * columns + c] !== Math.ceil(255 * read[c] / (3 * run.lanes.length))) return `${r} ${c}`;
                if (run.fine.chosen[r * columns + c] !== Math.ceil(255 * chosen[c] / run.lanes.length)) return `${r} ${c}`;
              }
            }
            return "";
        })()"""), "")

    def test_contrast_is_enough_in_both_themes(self):
        """Of each element with text of its own, with the background that it stands on."""
        script = """(() => {
            const canvas = document.createElement("canvas"), pen = canvas.getContext("2d", {willReadFrequently: true});
            canvas.width = canvas.height = 1;
            const over = (colours) => {
              pen.clearRect(0, 0, 1, 1);
              for (const colour of colours) pen.fillStyle = colour, pen.fillRect(0, 0, 1, 1);
              return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => value / 255)
                .map((value) => (value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4));
            };
            const light = ([r, g, b]) => .2126 * r + .7152 * g + .0722 * b;
            const found = [];
            for (const one of document.querySelectorAll("body *")) {
              if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
              if (one.closest("script, style, noscript") || !one.getClientRects().length) continue;
              const backs = [];
              for (let up = one; up; up = up.parentElement) backs.unshift(getComputedStyle(up).backgroundColor);
              backs.unshift("#888");
              const back = light(over(backs)), ink = light(over([...backs, getComputedStyle(one).color]));
              const ratio = (Math.max(back, ink) + .05) / (Math.min(back, ink) + .05);
              found.push([ratio, `${one.tagName}.${one.className} ${one.textContent.slice(0, 20)}`]);
            }
            return found.sort((a, b) => a[0] - b[0]).slice(0, 1).concat([[found.length, "elements"]]);
        })()"""
        for scheme in ("light", "dark"):
            self.tab.prefer(scheme)
            self.open()
            for kind in range(5):  # each state of text is there
                self.tab.run(f"document.querySelector('.text span').className = 'k{kind}'")
                (worst, where), (count, _) = self.tab.run(script)
                self.assertGreater(count, 60)
                self.assertGreaterEqual(worst, 4.5, f"{scheme}: {where}")
            back = self.tab.run("getComputedStyle(document.body).backgroundColor")
            self.assertEqual(int(back[4:].split(",")[0]) > 128, scheme == "light")

    def small(self, *runs, texts):
        path = os.path.join(self.folder.name, "small.html")
        write_page(path, list(runs), texts)
        self.open(path)

    def test_the_cursor_begins_where_all_have_a_token(self):
        texts = [[f" word{t}" for t in range(tokens)] for tokens in (200, 60)]
        self.small(*(small_run(f"p{i}", text, i, 20, lambda piece: (48, 3)) for i, text in enumerate(texts)), texts=texts)
        self.assertEqual(self.where(), 59)
        for i in range(2):
            self.assertIn("word56 word57 word58 word59", self.detail(i))

    def test_text_is_as_strong_as_the_share_of_heads_that_read_it(self):
        words = [f" word{t}" for t in range(40)]
        lanes = [1, 12, 24, 36, 48, 48]
        for level, kind in ((7, "k3"), (3, "k1")):
            self.small(small_run("p", words, 0, 20, lambda piece: (lanes[piece] if piece < 6 else 0, level)), texts=[words])
            self.frame()
            of = "[...document.querySelectorAll('.text span')].slice(0, 6)"
            self.assertEqual(self.tab.run(f"{of}[0].className"), f"{kind} s1")
            shades = self.tab.run(f"{of}.map((one) => [...one.classList].find((name) => name.startsWith('s')).slice(1))")
            self.assertEqual(shades, ["1", "2", "4", "6", "8", "8"])
            self.assertEqual(self.tab.run(f"new Set({of}.map((one) => getComputedStyle(one).backgroundColor)).size"), 5)
        self.assertIn("stronger: in more of the layers and KV heads", self.tab.run("document.getElementById('legend').textContent"))

    def test_what_is_pinned_has_a_colour_of_its_own_while_it_is(self):
        words = [f" word{t}" for t in range(60)]
        pinned = [0, 8, 0, 0, 40, 12, 16, 1, 0, 30, 17, 19, 0, 0, 40]  # two segments, one for 30 steps, half of one
        self.small(small_run("p", words, 0, 20, lambda piece: (48, 3), pinned=pinned), texts=[words])
        self.tab.run("document.querySelector('.run .plot').focus()")
        kinds = "[...document.querySelectorAll('.text span')].slice(0, 5).map((one) => one.className.slice(0, 2))"
        at = """((position, row) => {  // a pixel of the timeline
            const view = views[0], {scale} = view, copy = document.createElement("canvas");
            const pen = copy.getContext("2d", {willReadFrequently: true});
            const x = view.xOf(position + .5) * scale, y = (row + .5 - view.top) * view.rowHeight * scale;
            pen.drawImage(view.canvases[0], -Math.floor(x), -Math.floor(y));
            return [...pen.getImageData(0, 0, 1, 1).data];
        })"""
        own = self.tab.run("colour('--pinned').slice(1).match(/../g).map((byte) => parseInt(byte, 16))")
        for position, third in ((49, "k4"), (50, "k2")):
            self.tab.run(f"moveTo({position}, 12)")
            self.frame()
            self.assertEqual(self.tab.run(kinds), ["k4", "k4", "k2", third, "k2"])
            said = self.detail(0)
            self.assertEqual("Pinned, until another question." in said, third == "k4")
            first, second, other, question, half = (self.tab.run(f"{at}({position}, {row})") for row in range(5))
            self.assertEqual(first, second)
            self.assertEqual(other, half)
            self.assertLess(max(abs(a - b) for a, b in zip(first, own)), 4)
            self.assertGreater(max(abs(a - b) for a, b in zip(other, own)), 40)
            self.assertEqual(question, first if third == "k4" else other)
        for place, words_of in ((0, "heads. Pinned.word0"), (16, "heads. 2 of its tokens: pinned.word16"),
                                (8, "heads.word8")):
            self.tab.run(f"moveTo(40, {place})")
            said = self.detail(0)
            self.assertIn(words_of, said)
        self.assertIn("pinned", self.tab.run("document.getElementById('legend').textContent"))

    def test_the_text_follows_the_cross(self):
        words = [f" word{t}" if t % 7 else "\n" for t in range(1200)]
        self.small(small_run("p", words, 0, 20, lambda piece: (48, 3)), texts=[words])
        inside = """(() => { const box = document.querySelector('.text').getBoundingClientRect();
                             const at = document.querySelector('.text .at').getBoundingClientRect();
                             return box.top <= at.top && at.bottom <= box.bottom; })()"""
        self.frame()
        self.assertTrue(self.tab.run(inside))  # the token that reads
        self.tab.run("document.querySelector('.run .plot').focus()")
        for _ in range(8):
            self.tab.key("ArrowUp", shift=True)
        self.assertIn("tokens 876 – 879", self.detail(0))
        self.assertTrue(self.tab.run(inside))
        left, top, width, height = self.place(".run .plot")
        for kind in ("mousePressed", "mouseReleased"):
            self.tab.mouse(kind, left + width - 5, top + 3, button="left", clickCount=1)
        self.frame()
        self.assertTrue(self.tab.run(inside))
        self.assertLess(self.tab.run("document.querySelector('.text').scrollTop"), 2000)

    def test_answers_stand_side_by_side(self):
        texts = [[" the", " question"] * 10 + [" an", " answer", " of", end] for end in (" one", " two")]
        runs = [small_run(f"p{i}", text, i, 20, lambda piece: (48, 3)) for i, text in enumerate(texts)]
        self.small(*runs, texts=texts)
        said = "[...document.querySelectorAll('#answers article')]"
        self.assertEqual(self.tab.run(f"{said}.map((one) => one.querySelector('.answer').textContent)"),
                         [" an answer of one", " an answer of two"])
        self.assertEqual(self.tab.run("[...document.querySelectorAll('#answers mark')].map((one) => one.textContent)"), ["two"])
        self.assertEqual(self.tab.run(f"new Set({said}.map((one) => one.getBoundingClientRect().top)).size"), 1)

    def test_the_same_text_is_said_to_be_one(self):
        self.open()
        said = "[...document.querySelectorAll('#answers article')]"
        self.assertEqual(self.tab.run(f"{said}.map((one) => one.querySelector('h3').textContent)"), ["full"])
        self.assertIn("All others pass this text too", self.tab.run("document.getElementById('same').textContent"))
        self.assertIn("the same for all", self.tab.run("document.getElementById('lead').textContent"))

    def test_words_are_found(self):
        words = [" Needle." if t in (90, 700) else f" word{t}" for t in range(1200)]
        self.small(small_run("p", words, 0, 20, lambda piece: (48, 3)), texts=[words])
        self.tab.run("""(() => { const one = document.getElementById('find'); one.focus(); one.value = 'needle.';
                                 one.dispatchEvent(new Event('input')); })()""")
        for number, token in (("1", 90), ("2", 700), ("1", 90)):
            self.assertIn(f"tokens {token // 4 * 4} – {token // 4 * 4 + 3}", self.detail(0))
            self.assertEqual(self.tab.run("document.getElementById('found').textContent"), f"{number} of 2")
            self.tab.key("Enter")
        self.assertEqual(self.tab.run("[...CSS.highlights.get('found')].map(String)"), ["Needle."] * 2)
        self.tab.run("""(() => { const one = document.getElementById('find'); one.value = 'word(';
                                 one.dispatchEvent(new Event('input')); })()""")
        self.assertEqual(self.tab.run("document.getElementById('found').textContent"), "not there")

    def test_it_is_printed_on_two_pages(self):
        self.open()
        made = self.tab.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        self.assertEqual(len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(made["data"]))), 2)

    def test_a_phone_needs_no_scrolling_to_the_side(self):
        self.tab.size(400, 800, phone=True)
        self.open()
        self.assertLessEqual(self.tab.run("document.documentElement.scrollWidth"), 400)
        self.assertGreaterEqual(self.tab.run("document.querySelector('.run .plot').clientWidth"), 330)

    def test_sixteen_thousand_tokens_are_quick(self):
        path = os.path.join(self.folder.name, "large.html")
        large_page(path)
        self.assertLess(os.path.getsize(path), 8 << 20)
        self.open(path)
        for _ in range(50):
            paint = self.tab.run("performance.getEntriesByType('paint').map((one) => one.startTime)")
            if paint:
                break
            time.sleep(0.05)
        self.assertLessEqual(min(paint), 1000)
        self.assertEqual(self.tab.run("document.querySelectorAll('.text span').length"), 1024)
        frames = """new Promise((done) => {
            const times = [];
            const next = (now) => { times.push(now); WORK; times.length < 24 ? requestAnimationFrame(next) : done(times); };
            requestAnimationFrame(next);
        })"""
        for what, work, least in (("scrolling", "window.scrollTo(0, (times.length % 20) * 60)", 30),
                                  ("the cursor", "moveTo(600 + 350 * times.length)", 30),
                                  ("zooming", "zoom(times.length % 8 < 4 ? 1.3 : 1 / 1.3)", 10)):
            times = self.tab.run(frames.replace("WORK", work))
            steps = sorted(b - a for a, b in zip(times, times[1:]))
            print(f"{what}: {1000 / steps[len(steps) // 2]:.0f} frames a second", file=sys.stderr)
            self.assertLessEqual(steps[len(steps) // 2], 1000 / least, what)


def random_trace(path, layers, tokens, prompt):
    """A trace of thoughts that have sentences and summaries (docs/replay.md), of random numbers."""
    dice, heads, kv_heads, dims = random.Random(2), 4, 2, 8
    text, ends, classes, header, data = b"", [], bytearray(), {}, bytearray()
    for t in range(tokens):
        at = (t - prompt) % 16 if t >= prompt else -1
        classes.append({-1: t % 8 == 7, 0: 2, 5: 1, 11: 4, 12: 8, 15: 16}.get(at, 0))
        text += {-1: " word", 0: "\n<thought>", 5: ".", 11: "</thought>", 12: "<summary>",
                 15: "</summary>"}.get(at, " käse").encode()
        ends.append(len(text))

    def add(name, dtype, shape, numbers):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data.extend(numbers)

    for layer in range(layers):
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            numbers = array.array("f", (dice.gauss(0, 2) for _ in range(tokens * count * dims)))
            add(f"layers.{layer}.{name}", "F32", [tokens, count, dims], numbers.tobytes())
    add("text_ends", "I32", [tokens], array.array("i", ends).tobytes())
    add("token_classes", "U8", [tokens], bytes(classes))
    add("text", "U8", [len(text)], text)
    header["__metadata__"] = {"zoomr_trace": "1", "layers": str(layers), "heads": str(heads), "kv_heads": str(kv_heads),
                              "head_dim": str(dims), "first": "0", "prompt": str(prompt), "model": "random"}
    head = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(len(head).to_bytes(8, "little") + head + data)
    return text.decode()


class ReplayPage(unittest.TestCase):
    """24 layers under five policies of LEDGER."""

    policies = ["full", "window@40", "zoomr_focus", "sentence_kv@96", "quest@32"]

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        trace, cls.page, numbers = (os.path.join(cls.folder.name, name) for name in ("trace", "page.html", "numbers"))
        cls.text = random_trace(trace, 24, 200, 40)
        done = subprocess.run([REPLAY, trace, "--policy", ",".join(cls.policies), "--report", cls.page, "--json",
                               numbers], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        with open(numbers, encoding="utf-8") as file:
            cls.runs = json.load(file)["runs"]
        cls.tab = browser.Browser()
        cls.tab.size(1280)
        cls.tab.open(cls.page, READY)

    @classmethod
    def tearDownClass(cls):
        cls.tab.close()
        cls.folder.cleanup()

    def test_it_has_all_layers_policies_and_the_text(self):
        run = self.tab.run
        names = run("[...document.querySelectorAll('.run h3')].map((one) => one.textContent)")
        self.assertEqual(names, self.policies)
        figures = run("document.getElementById('figures').textContent")
        for word in ("error of outputs, mean", "captured mass", "keys with the largest logits"):
            self.assertIn(word, figures)
        self.assertIn("--report", run("document.getElementById('command').textContent"))
        self.assertEqual(run("data.texts.map((one) => one.join(''))"), [self.text])
        self.assertEqual(run("document.querySelectorAll('#layer option').length"), 24 + 1)
        for i, made in enumerate(self.runs):
            self.assertEqual(run(f"data.runs[{i}].levels.lanes.length"), 24 * 2)
            self.assertEqual([run(f"data.runs[{i}].{name}") for name in ("prompt", "tokens", "steps")], [40, 200, 160])
            self.assertEqual(run(f"data.runs[{i}].series.attended.reduce((a, b) => a + b)"), made["stats"]["attended"])
            self.assertGreater(run(f"(() => {{ const one = document.querySelectorAll('.run canvas')[{2 * i}];"
                                   "return new Set(new Uint32Array(one.getContext('2d').getImageData(0, 0, one.width,"
                                   " one.height).data.buffer)).size; })()"), 3)
        self.assertEqual(self.tab.complaints(), [])
        self.assertEqual([url for url in self.tab.requests() if not url.startswith(("file://", "data:"))], [])

    def test_a_window_has_read_what_is_in_it(self):
        """Pieces that are read at the last step by the first KV head: sinks, and the last tokens."""
        pieces = self.tab.run("data.runs[1].pieces")
        runs = self.tab.run("data.runs[1].levels.classes[data.runs[1].levels.lanes[0]]")
        self.assertEqual(self.tab.run("data.runs[1].levels.stride"), 1)
        read, at = {}, 0
        while at < len(runs):
            piece, count = runs[at:at + 2]
            at, column = at + 2, 0
            for _ in range(count):
                column += runs[at] + runs[at + 1]
                if column == 160:
                    read[piece] = runs[at + 2]
                at += 3
        expected = {}
        for piece in range(1, len(pieces) // 5):
            begin, split = pieces[5 * piece:5 * piece + 2]
            seen = sum(t < 4 or t >= 164 for t in range(begin, split))
            if seen:
                expected[piece] = 3 if seen == split - begin else 2
        self.assertEqual({piece: level for piece, level in read.items() if piece > 0}, expected)


if __name__ == "__main__":
    if browser.program() is None:
        print("skipped: there is no Chromium (Debian's package `chromium`)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
