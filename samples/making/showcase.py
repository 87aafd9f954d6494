"""The documents of samples/: what a newcomer sees first."""

import io
from collections.abc import Iterator

from reportlab.lib import colors
from reportlab.lib.enums import TA_CENTER, TA_JUSTIFY
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    KeepTogether,
    NextPageTemplate,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
    TableStyle,
)

from . import prose
from .document import Document
from .drawing import A4, encode, new_canvas, pdf, picture, put, scanned, style, with_latin


def showcase() -> Iterator[Document]:
    yield paper()
    yield invoice()
    yield chinese_page()
    yield scan()
    yield rotated_letter()


# --- the paper -------------------------------------------------------------------------------------------------------

MARGIN, GUTTER, HEAD = 54.0, 20.0, 236.0
COLUMN = (A4[0] - 2 * MARGIN - GUTTER) / 2


class Curves(Flowable):
    """Two curves over an evening: calls in an hour and birds seen."""

    def wrap(self, available_width: float, available_height: float) -> tuple[float, float]:
        del available_height
        self.width, self.height = available_width, 150.0
        return self.width, self.height

    def draw(self) -> None:
        canvas, left, bottom = self.canv, 34.0, 26.0
        right, top = self.width - 8, self.height - 8
        step = (right - left) / 6
        canvas.setStrokeColor(colors.HexColor("#d0d0d0"))
        canvas.setFillColor(colors.HexColor("#333333"))
        canvas.setFont("Sans", 9)
        for line in range(5):
            y = bottom + line * (top - bottom) / 4
            canvas.line(left, y, right, y)
            canvas.drawRightString(left - 4, y - 3, str(line * 100))
        for index, label in enumerate(("20.00", "20.30", "21.00", "21.30", "22.00", "22.30", "23.00")):
            if index % 2 == 0:
                canvas.drawCentredString(left + index * step, bottom - 12, label)
        for values, colour in (
            ((20, 60, 150, 290, 380, 180, 10), "#1f5fa8"),
            ((40, 75, 130, 260, 330, 215, 25), "#c8541e"),
        ):
            path = canvas.beginPath()
            for index, value in enumerate(values):
                x, y = left + index * step, bottom + value * (top - bottom) / 400
                path.lineTo(x, y) if index else path.moveTo(x, y)
                canvas.setFillColor(colors.HexColor(colour))
                canvas.circle(x, y, 2.2, stroke=0, fill=1)
            canvas.setStrokeColor(colors.HexColor(colour))
            canvas.setLineWidth(1.4)
            canvas.drawPath(path)
        canvas.setStrokeColor(colors.HexColor("#333333"))
        canvas.setLineWidth(0.8)
        canvas.line(left, bottom, right, bottom)
        canvas.line(left, bottom, left, top)


def paper_table() -> Table:
    table = Table(prose.PAPER_TABLE, colWidths=[COLUMN * share for share in (0.28, 0.24, 0.22, 0.26)], rowHeights=17)
    table.setStyle(
        TableStyle([
            ("FONT", (0, 0), (-1, -1), "Serif", 10),
            ("FONT", (0, 0), (-1, 0), "Serif-Bold", 10),
            ("ALIGN", (1, 0), (-1, -1), "RIGHT"),
            ("LINEABOVE", (0, 0), (-1, 0), 1, colors.black),
            ("LINEBELOW", (0, 0), (-1, 0), 0.5, colors.black),
            ("LINEABOVE", (0, -1), (-1, -1), 0.5, colors.black),
            ("LINEBELOW", (0, -1), (-1, -1), 1, colors.black),
        ])
    )  # fmt: skip
    return table


def paper_story() -> Iterator[Flowable]:
    body = style("Serif", 11.2, leading=14.4, alignment=TA_JUSTIFY, spaceAfter=6, allowWidows=0, allowOrphans=0)
    caption = style("Serif-Italic", 9.5, leading=12, spaceBefore=3, spaceAfter=10)
    formula = [[prose_text, "(1)"] for kind, prose_text in prose.PAPER_BODY if kind == "formula"]
    looks = {
        "heading": style("Sans-Bold", 12, spaceBefore=6, spaceAfter=5, keepWithNext=1),
        "text": body,
        "reference": style("Serif", 9.5, leading=12, leftIndent=14, firstLineIndent=-14, spaceAfter=3),
    }
    yield NextPageTemplate("following")
    for kind, text in prose.PAPER_BODY:
        if kind == "figure":
            yield KeepTogether([Spacer(1, 4), Curves(), Paragraph(text, caption)])
        elif kind == "table":
            yield KeepTogether([Spacer(1, 2), Paragraph(text, caption), paper_table(), Spacer(1, 12)])
        elif kind == "formula":
            row = Table(formula, colWidths=[COLUMN * 0.85, COLUMN * 0.15], rowHeights=22)
            row.setStyle(
                TableStyle([
                    ("FONT", (0, 0), (0, 0), "Serif-Italic", 12),
                    ("FONT", (1, 0), (1, 0), "Serif", 11),
                    ("ALIGN", (0, 0), (0, 0), "CENTER"),
                    ("ALIGN", (1, 0), (1, 0), "RIGHT"),
                ])
            )  # fmt: skip
            yield KeepTogether([row, Spacer(1, 6)])
        else:
            yield Paragraph(text, looks[kind])


def paper_head(canvas: Canvas, _: object) -> None:
    width = A4[0] - 2 * MARGIN
    top = A4[1] - 50
    top = put(canvas, prose.PAPER_TITLE, style("Serif-Bold", 19, alignment=TA_CENTER), MARGIN, top, width) - 8
    top = put(canvas, prose.PAPER_AUTHORS, style("Serif", 12, alignment=TA_CENTER), MARGIN, top, width) - 2
    top = (
        put(canvas, prose.PAPER_AFFILIATION, style("Serif-Italic", 10.5, alignment=TA_CENTER), MARGIN, top, width) - 12
    )
    top = put(canvas, "Abstract", style("Sans-Bold", 11, alignment=TA_CENTER), MARGIN, top, width) - 4
    look = style("Serif", 10.5, leading=13.2, alignment=TA_JUSTIFY)
    put(canvas, prose.PAPER_ABSTRACT, look, MARGIN + 36, top, width - 72)
    page_number(canvas, _)


def page_number(canvas: Canvas, _: object) -> None:
    canvas.setFont("Serif", 10)
    canvas.drawCentredString(A4[0] / 2, 30, str(canvas.getPageNumber()))


def paper() -> Document:
    def columns(top: float) -> list[Frame]:
        return [
            Frame(x, 52, COLUMN, top - 52, leftPadding=0, rightPadding=0, topPadding=0, bottomPadding=0)
            for x in (MARGIN, MARGIN + COLUMN + GUTTER)
        ]

    buffer = io.BytesIO()
    template = BaseDocTemplate(buffer, pagesize=A4, title=prose.PAPER_TITLE, author=prose.PAPER_AUTHORS)
    template.addPageTemplates(
        [
            PageTemplate("first", columns(A4[1] - HEAD), onPage=paper_head),
            PageTemplate("following", columns(A4[1] - 54), onPage=page_number),
        ]
    )
    template.build(
        list(paper_story()),
        canvasmaker=lambda file, **_: new_canvas(file, A4, prose.PAPER_TITLE),
    )
    first = (
        prose.PAPER_TITLE,
        prose.PAPER_AUTHORS,
        "Small towns rarely know how many swifts breed under their roofs",
        "1 Introduction",
        "Common swifts nest in cavities of old buildings and return to the same hole for many years.",
        "Knowing where colonies are is therefore the first step of protecting them.",
        "Sound offers another way.",
        "2 Method",
        "We placed eighteen recorders on balconies and window sills in three towns between May and July.",
        "Volunteers counted the birds from the same balconies on 42 of these evenings.",
        "where N is the number of birds, C the number of calls in an hour",
        "3 Results",
        "The recorders stored 3,906 hours of sound, of which rain made seven percent useless.",
    )
    second = (
        "Two colonies were new to the town offices.",
        "4 Discussion",
        "The method counts sound and not birds, and this has limits.",
        "The strength of the method is patience.",
        "5 Conclusion",
        "A lunch box with a microphone can tell a small town where its swifts live.",
        "References",
        "Aldana, P. (2014). Evening flights of aerial insect eaters.",
    )
    figure = "Figure 1: Calls in an hour and birds seen from the same balcony during one evening in June."
    table = (
        "Table 1: Birds counted by volunteers and estimated from calls in three towns.",
        "Norrvik",
        "447",
    )
    return Document(
        "samples/paper-two-columns.pdf", buffer.getvalue(), "two-column paper with a figure, a table and a formula",
        pages=2, snippets={1: (*first, figure), 2: second + table}, reading_order={1: first, 2: second},
    )  # fmt: skip


# --- the invoice -----------------------------------------------------------------------------------------------------


def draw_invoice(canvas: Canvas) -> None:
    left, right, top = 60.0, A4[0] - 60, A4[1] - 60
    blue = colors.HexColor("#173f6b")
    canvas.setFillColor(blue)
    canvas.rect(left, top - 34, 34, 34, stroke=0, fill=1)
    canvas.setFillColor(colors.white)
    canvas.setFont("Sans-Bold", 18)
    canvas.drawCentredString(left + 17, top - 24, "B")
    put(canvas, prose.INVOICE_FROM[0], style("Sans-Bold", 17, textColor=blue), left + 46, top, 300)
    put(canvas, "<br/>".join(prose.INVOICE_FROM[1:]), style("Sans", 9.5), right - 190, top, 190)
    canvas.setStrokeColor(blue)
    canvas.line(left, top - 46, right, top - 46)

    put(canvas, "<br/>".join(prose.INVOICE_TO), style("Sans", 11, leading=15), left, top - 80, 220)
    for row, (name, value) in enumerate(prose.INVOICE_FACTS):
        canvas.setFillColor(colors.black)
        canvas.setFont("Sans", 10.5)
        canvas.drawString(right - 190, top - 92 - 16 * row, name)
        canvas.drawRightString(right, top - 92 - 16 * row, value)
    y = put(canvas, "Invoice", style("Sans-Bold", 20), left, top - 175, 300) - 14
    y = put(canvas, prose.INVOICE_BEFORE, style("Sans", 10.5, leading=14), left, y, right - left) - 14

    table = Table(prose.INVOICE_TABLE, colWidths=[40, 215, 65, 75, 80], rowHeights=25)
    grid = [
        ("FONT", (0, 0), (-1, -1), "Sans", 10.5), ("FONT", (0, 0), (-1, 0), "Sans-Bold", 10.5),
        ("GRID", (0, 0), (-1, -1), 0.8, colors.HexColor("#333333")),
        ("BACKGROUND", (0, 0), (-1, 0), colors.HexColor("#e3eaf3")),
        ("ALIGN", (2, 0), (-1, -1), "RIGHT"), ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
    ]  # fmt: skip
    table.setStyle(TableStyle(grid))
    _, height = table.wrap(right - left, 500)
    table.drawOn(canvas, left, y - height)
    y -= height + 24
    for name, value in prose.INVOICE_TOTALS:
        bold = name.startswith("Total")
        canvas.setFont("Sans-Bold" if bold else "Sans", 12 if bold else 10.5)
        canvas.drawString(right - 190, y, name)
        canvas.drawRightString(right - 6, y, value)
        if not bold:
            canvas.setLineWidth(0.5)
        y -= 20
    put(canvas, prose.INVOICE_AFTER, style("Sans", 10.5, leading=14), left, y - 22, right - left)


def invoice() -> Document:
    image = picture(pdf(A4, "Invoice", draw_invoice)).quantize(32, dither=0)
    cells = (
        "Reading lamp, brass, 40 cm", "Book scanner service, half day", "Humidity sensor with display",
        "Archive boxes, acid free", "310.00", "27.25", "1,080.00",
    )  # fmt: skip
    return Document(
        "samples/invoice.png", encode(image, "PNG", optimize=True, dpi=(144, 144)),
        "invoice with letterhead, bordered table and totals", file_type=1,
        snippets={1: ("2 Lighthouse Road", "BW-20418", prose.INVOICE_BEFORE, *cells)},
        contains={1: ("<table",)},
    )  # fmt: skip


# --- the Chinese page ------------------------------------------------------------------------------------------------


def draw_chinese(canvas: Canvas) -> None:
    left, width = 72.0, A4[0] - 144
    y = put(canvas, prose.ZH_TITLE, style("Hei", 22, alignment=TA_CENTER), left, A4[1] - 70, width) - 10
    y = put(canvas, with_latin(prose.ZH_BYLINE), style("Hei", 11, alignment=TA_CENTER), left, y, width) - 22
    looks = {
        "heading": style("Hei", 15, wordWrap="CJK", textColor="#173f6b"),
        "text": style("Hei", 12, leading=20, wordWrap="CJK", firstLineIndent=24),
    }
    for kind, text in prose.ZH_BODY:
        y = put(canvas, with_latin(text), looks[kind], left, y, width) - (8 if kind == "heading" else 12)


def chinese_page() -> Document:
    headings = tuple(text for kind, text in prose.ZH_BODY if kind == "heading")
    texts = (
        "雨水花园是一块略低于地面的浅洼绿地。", "在一场中等强度的降雨中大约可以接纳三立方米的雨水",
        "选址时要离开房屋基础至少三米", "挖土深度以三十厘米为宜", "中间低洼处可以种鸢尾、千屈菜和灯心草",
        "每年春天剪去枯枝", "0555-010-336",
    )  # fmt: skip
    order = (prose.ZH_TITLE, headings[0], texts[0], headings[1], texts[2], headings[2], texts[4], headings[3], texts[5])
    return Document(
        "samples/page-zh.pdf", pdf(A4, "Rain gardens", draw_chinese), "Chinese page with headings",
        snippets={1: (prose.ZH_TITLE, *headings, *texts)}, reading_order={1: order},
    )  # fmt: skip


# --- scan and letter -------------------------------------------------------------------------------------------------


def draw_memo(canvas: Canvas) -> None:
    left, width = 80.0, A4[0] - 160
    y = put(canvas, prose.SCAN_HEAD[0], style("Mono", 15, alignment=TA_CENTER), left, A4[1] - 90, width) - 12
    for line in prose.SCAN_HEAD[1:]:
        y = put(canvas, line, style("Mono", 12, alignment=TA_CENTER), left, y, width) - 4
    y -= 26
    for text in prose.SCAN_BODY:
        y = put(canvas, text, style("Mono", 12, leading=18), left, y, width) - 16
    y -= 24
    for line in prose.SCAN_SIGNATURE:
        y = put(canvas, line, style("Mono", 12), left + 230, y, 200) - 2


def scan() -> Document:
    image = scanned(picture(pdf(A4, "Notice", draw_memo), dpi=150), degrees=0.6, seed=1987)
    return Document(
        "samples/scan.jpg", encode(image, "JPEG", quality=62, dpi=(150, 150)),
        "scan of a typed notice: noise, specks, paper tone, skew of 0.6 degrees", file_type=1,
        snippets={1: (
            "PORT ELLERY HARBOUR OFFICE", "Notice to masters of fishing vessels",
            "From Monday next the north basin will be closed for dredging.",
            "While the dredger is at work, speed in the entrance is limited to four knots.",
            "Nets and lobster pots must not be left on the quay.",
            "The work is expected to last three weeks.",
        )},
    )  # fmt: skip


def draw_letter(canvas: Canvas) -> None:
    canvas.translate(0, A4[0])
    canvas.rotate(-90)  # the page lies turned clockwise by a quarter
    left, width, top = 80.0, A4[0] - 160, A4[1]
    put(canvas, prose.LETTER_BODY[-1], style("Serif-Bold", 15), left, top - 60, width)
    y = put(canvas, "<br/>".join(prose.LETTER_ADDRESS), style("Serif", 12, leading=16), left, top - 120, width)
    y = put(canvas, prose.LETTER_DATE, style("Serif", 12), left + 330, y - 14, width) - 22
    y = put(canvas, prose.LETTER_SUBJECT, style("Serif-Bold", 13), left, y, width) - 16
    for text in prose.LETTER_BODY:
        y = put(canvas, text, style("Serif", 12.5, leading=17), left, y, width) - 12


def rotated_letter() -> Document:
    return Document(
        "samples/letter-rotated.pdf", pdf((A4[1], A4[0]), prose.LETTER_SUBJECT, draw_letter),
        "letter that lies turned clockwise by 90 degrees", options={"useDocOrientationClassify": True},
        snippets={1: (
            prose.LETTER_SUBJECT, "Thank you for letting our apprentice climb the tower last week.",
            "The cause is a bent hand that touches the glass at a quarter past every hour.",
            "The bell would be silent for one morning.",
        )},
    )  # fmt: skip
