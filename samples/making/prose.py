"""The words of the sample documents. All of it is invented: people, firms, places, figures.

Plain apostrophes, hyphens and quotes throughout, so that a snippet in the manifest has one spelling.
"""

PAPER_TITLE = "Counting Swifts at Dusk with a Cheap Microphone"
PAPER_AUTHORS = "Marta Lindqvist, Oren Tal and Jia Wenhao"
PAPER_AFFILIATION = "Institute for Urban Ecology, University of Halmby"
PAPER_ABSTRACT = (
    "Small towns rarely know how many swifts breed under their roofs, because counting them takes trained people "
    "on many evenings. We recorded the screaming calls of common swifts with microphones that cost less than a "
    "bicycle lamp, and compared the number of calls with the number of birds that volunteers saw from the same "
    "spot. Over 42 evenings the two agreed within 12 percent once traffic noise was subtracted. A town of twenty "
    "thousand people can repeat the survey every year for the price of one day of expert work."
)

# (style, text); "figure", "table" and "formula" stand where the drawing goes.
PAPER_BODY = (
    ("heading", "1 Introduction"),
    (
        "text",
        "Common swifts nest in cavities of old buildings and return to the same hole for many years. When a roof "
        "is renovated the entrance is often closed by accident, and nobody notices until the colony is gone. "
        "Building owners are usually willing to leave a gap open if they are told in time where it is.",
    ),
    (
        "text",
        "Knowing where colonies are is therefore the first step of protecting them. The usual method is to stand "
        "in a street at dusk and count the birds that fly low between the houses. It works well, but it needs "
        "several people who can tell a swift from a martin, and it depends on the weather of that evening.",
    ),
    (
        "text",
        "Sound offers another way. On warm evenings swifts chase each other in tight groups and scream while they "
        "pass the nests. The calls lie between four and seven kilohertz, well above most traffic, and a recorder "
        "on a balcony can listen every night without getting tired.",
    ),
    ("heading", "2 Method"),
    (
        "text",
        "We placed eighteen recorders on balconies and window sills in three towns between May and July. Each "
        "recorder consists of a small microphone, a memory card and two batteries inside a plastic lunch box. "
        "The box is open towards the street and covered with a thin cloth against the rain.",
    ),
    (
        "text",
        "Every evening from one hour before sunset until half an hour after it, the recorder stored ten seconds "
        "of sound out of each minute. A short program then marked every call that was louder than the "
        "background in the band of the swifts. Calls that overlapped were counted once.",
    ),
    (
        "text",
        "Volunteers counted the birds from the same balconies on 42 of these evenings. They wrote down the largest "
        "group seen in each quarter of an hour and did not know what the recorders had found. The number of "
        "birds was then estimated from the calls by a single line through the origin,",
    ),
    ("formula", "N = k (C - b)"),
    (
        "text",
        "where N is the number of birds, C the number of calls in an hour, b the calls that remain after the "
        "swifts have left in August, and k a constant of the place. One evening with a volunteer is enough to "
        "find k, since b is measured by the recorder itself later in the year.",
    ),
    ("figure", "Figure 1: Calls in an hour and birds seen from the same balcony during one evening in June."),
    ("heading", "3 Results"),
    (
        "text",
        "The recorders stored 3,906 hours of sound, of which rain made seven percent useless. Figure 1 shows a "
        "typical evening: the calls rise quickly after sunset, reach their peak within forty minutes and stop "
        "almost at once when it is dark. The birds seen by the volunteers follow the same curve.",
    ),
    (
        "text",
        "Table 1 lists the result for each town. The difference between the two methods was smallest in Halmby, "
        "where the streets are narrow and quiet, and largest in Norrvik, where one recorder stood next to a bus "
        "stop. Without the correction for noise the error in Norrvik would have been twice as large.",
    ),
    ("table", "Table 1: Birds counted by volunteers and estimated from calls in three towns."),
    (
        "text",
        "Two colonies were new to the town offices. One of them, with at least nine pairs, was found under the "
        "roof of a school that was to be renovated in the following winter. The builder left the entrances "
        "open, and the birds came back in spring.",
    ),
    ("heading", "4 Discussion"),
    (
        "text",
        "The method counts sound and not birds, and this has limits. Young swifts that visit the colony in July "
        "scream more than breeding pairs do, so the estimate is best made in June. On cold evenings the birds "
        "fly high and silent, and a survey of a single night may miss a colony completely.",
    ),
    (
        "text",
        "The strength of the method is patience. A recorder that listens for sixty evenings sees through the bad "
        "ones, and the same box can stand on the same balcony for ten years. What changes from year to year "
        "is then the colony and not the eye of the observer.",
    ),
    (
        "text",
        "Neighbours turned out to be the best part of the equipment. People who had lent us their balcony began to "
        "look up in the evening, told us about cavities that no map shows, and asked the builder next door to "
        "wait until August. In Ekerud a baker now keeps the list of all known entrances.",
    ),
    (
        "text",
        "Other birds were rarely a problem. Starlings sometimes imitate a swift, but they do so in daylight and "
        "alone, and the program ignores calls that come without an answer. Bats call far above the band that "
        "our microphones can hear.",
    ),
    (
        "text",
        "We did not try to tell single birds apart. A second microphone would allow us to follow a group along "
        "the street, but it would also double the price of the box, and the simple count was good enough for "
        "the question that the towns had asked.",
    ),
    ("heading", "5 Conclusion"),
    (
        "text",
        "A lunch box with a microphone can tell a small town where its swifts live. The parts cost eleven euros, "
        "the program runs on any old laptop, and the result is close to the count of a trained volunteer. We "
        "hope that many balconies will be lent to the birds for a summer.",
    ),
    ("heading", "References"),
    ("reference", "[1] Aldana, P. (2014). Evening flights of aerial insect eaters. Halmby Notes on Birds 7, 12-29."),
    ("reference", "[2] Oduya, K. and Brandt, S. (2019). Cheap recorders for long surveys. Field Methods 31, 201-215."),
    ("reference", "[3] Lindqvist, M. (2021). What roofers know about birds. Urban Ecology Letters 4, 88-93."),
)
PAPER_TABLE = (
    ("Town", "Evenings", "Counted", "Estimated"),
    ("Halmby", "16", "214", "209"),
    ("Ekerud", "14", "131", "140"),
    ("Norrvik", "12", "88", "98"),
    ("Total", "42", "433", "447"),
)

INVOICE_FROM = ("Brightwater Instruments Ltd", "14 Quay Street, Port Ellery PE3 7TD", "Telephone 0555 010 224")
INVOICE_TO = ("Harbour Library", "Attn. Ms Dorothea Pym", "2 Lighthouse Road", "Port Ellery PE1 4AB")
INVOICE_FACTS = (
    ("Invoice no.", "BW-20418"),
    ("Date", "12 March 2024"),
    ("Customer no.", "70355"),
    ("Due date", "11 April 2024"),
)
INVOICE_TABLE = (
    ("Item", "Description", "Quantity", "Unit price", "Amount"),
    ("1", "Reading lamp, brass, 40 cm", "6", "48.50", "291.00"),
    ("2", "Book scanner service, half day", "1", "310.00", "310.00"),
    ("3", "Humidity sensor with display", "4", "27.25", "109.00"),
    ("4", "Archive boxes, acid free", "50", "3.80", "190.00"),
)
INVOICE_TOTALS = (("Subtotal", "900.00"), ("VAT 20 %", "180.00"), ("Total due", "1,080.00"))
INVOICE_BEFORE = "Thank you for your order of 4 March. We have delivered the following goods and services:"
INVOICE_AFTER = (
    "Please pay the total within 30 days to account 60-11-42 7781 0093, Ellery Savings Bank, and give the invoice "
    "number as reference. Goods remain our property until they are paid in full."
)

ZH_TITLE = "社区雨水花园的建造与养护"
ZH_BYLINE = "林溪市园林科普小组　2024年春"
ZH_BODY = (
    ("heading", "一、什么是雨水花园"),
    (
        "text",
        "雨水花园是一块略低于地面的浅洼绿地。下雨时，屋顶和道路上的雨水先流到这里，被植物和土壤慢慢吸收，"
        "而不是直接排入下水道。这样既能减轻城市排水管网的压力，也能让干净的水回到地下。",
    ),
    (
        "text",
        "一座二十平方米的花园，在一场中等强度的降雨中大约可以接纳三立方米的雨水。雨停之后，积水应当在一天之内"
        "全部渗完，因此不会滋生蚊虫。",
    ),
    ("heading", "二、选址与施工"),
    (
        "text",
        "选址时要离开房屋基础至少三米，避开地下管线和大树的根系。先挖一个小坑，灌满水，观察水位下降的速度：如果"
        "每小时下降不到一厘米，就需要换土，或者另找地方。",
    ),
    (
        "text",
        "施工一般安排在秋末或早春。挖土深度以三十厘米为宜，底部铺一层碎石，上面覆盖掺有细沙和堆肥的种植土，"
        "边缘用石块压实，并在最低处留出一个溢流口。",
    ),
    ("heading", "三、植物的选择"),
    (
        "text",
        "适合雨水花园的植物既要耐短时间的水淹，又要经得起干旱。中间低洼处可以种鸢尾、千屈菜和灯心草，外围可以"
        "种萱草、景天和狼尾草。第一年需要经常浇水和除草，第二年以后就很省心了。",
    ),
    ("heading", "四、日常养护"),
    (
        "text",
        "每年春天剪去枯枝，补充两到三厘米厚的覆盖物；大雨过后清理入口处的落叶和泥沙。若发现积水超过24小时仍未"
        "退去，应当检查碎石层是否堵塞。参加养护的居民可以在社区服务站领取工具，电话是0555-010-336。",
    ),
)

SCAN_HEAD = ("PORT ELLERY HARBOUR OFFICE", "Notice to masters of fishing vessels", "No. 17, 3 October 1987")
SCAN_BODY = (
    "From Monday next the north basin will be closed for dredging. Vessels that are moored there have to move to the "
    "south quay before noon on Sunday. The harbour master will assign berths in the order in which vessels report.",
    "While the dredger is at work, speed in the entrance is limited to four knots. Two red lights, one above the "
    "other, are shown from the head of the mole when the entrance is blocked. No vessel may pass while they are "
    "burning.",
    "Nets and lobster pots must not be left on the quay. Anything found there after Sunday will be taken to the old "
    "salt store and can be collected on weekdays between eight and ten in the morning.",
    "The work is expected to last three weeks. Questions may be put to the office in person or on channel 12.",
)
SCAN_SIGNATURE = ("A. Thornquist", "Harbour Master")

LETTER_ADDRESS = ("Mr Edwin Castellane", "Clock Tower Cottage", "9 Mill Lane", "Port Ellery PE2 8QR")
LETTER_DATE = "21 June 2024"
LETTER_SUBJECT = "Repair of the tower clock"
LETTER_BODY = (
    "Dear Mr Castellane,",
    "Thank you for letting our apprentice climb the tower last week. She has examined the clock with great care and "
    "found that the escapement is in good order, although the north dial loses about two minutes a day.",
    "The cause is a bent hand that touches the glass at a quarter past every hour. We can straighten it on the spot, "
    "and we propose to clean and oil the striking train at the same visit. The bell would be silent for one morning.",
    "The work costs 640 pounds, scaffolding included. If you agree, we would come on the first dry day of July. Please "
    "let us know whether the swallows under the cornice have left by then, as we would not like to disturb them.",
    "Yours sincerely,",
    "Philippa Norrington",
    "Norrington and Daughters, Clockmakers",
)

# Small pages for the awkward kinds: each has words of its own, so that a mixed-up answer shows.
NOTICES = {
    "cmyk": (
        "Ferry timetable",
        "The ferry leaves the south quay every forty minutes.",
        "Bicycles travel free of charge on all weekday sailings.",
    ),
    "exif6": (
        "Allotment rules",
        "Water the tomatoes before nine in the morning.",
        "The gate must be closed at all times because of the goats.",
    ),
    "sixteen-bit": (
        "Weather log",
        "The barometer fell by twelve points overnight.",
        "Wind from the northwest, rain expected before supper.",
    ),
    "transparent": (
        "Opening hours",
        "The reading room is open from ten to six.",
        "Please leave umbrellas and wet coats at the door.",
    ),
    "gif": (
        "Choir practice",
        "We meet on Thursday evening in the boat house.",
        "New voices are welcome, above all tenors and basses.",
    ),
    "webp": (
        "Bakery prices",
        "A loaf of rye bread costs three pounds twenty.",
        "Yesterday's rolls are sold at half price until noon.",
    ),
    "g4": (
        "Telegram",
        "Arriving on the evening train with two trunks.",
        "Please send the cart to the station at half past seven.",
    ),
    "pdf-as-jpg": (
        "Lost property",
        "A green woollen scarf was found on the pier.",
        "The owner may collect it at the harbour office.",
    ),
    "owner-password": (
        "Minutes of the council",
        "The council agreed to plant forty lime trees.",
        "Work on the promenade will begin after the regatta.",
    ),
    "user-password": (
        "Sealed tender",
        "This page can be read only with the password.",
        "The offer for the new lamp posts remains confidential.",
    ),
    "truncated-jpeg": (
        "Fish market",
        "Fresh mackerel is sold on the quay from six o'clock.",
        "Bring your own basket and small change if you can.",
    ),
}
FAX_PAGES = (
    (
        "Fax page one",
        "The spare propeller was shipped on Tuesday by rail.",
        "It weighs ninety kilograms without the crate.",
    ),
    (
        "Fax page two",
        "Please check the shaft for scratches before mounting.",
        "Grease is supplied in the small blue tin.",
    ),
    (
        "Fax page three",
        "Return the empty crate to our depot within a month.",
        "The deposit will be refunded on arrival.",
    ),
)
STATIONS = (
    ("Ellery Mole", "The lamp was lit at dusk and burned all night without smoke."),
    ("Gull Rock", "Two keepers repaired the railing that the storm had torn away."),
    ("Saint Brannock", "A school of dolphins followed the supply boat to the landing."),
    ("Low Ness", "Fog came in at noon and the horn sounded for seven hours."),
    ("High Ness", "The new lens arrived in nine crates packed with straw."),
    ("Tern Island", "Fresh water is short and the cistern must be cleaned."),
    ("Cape Orrin", "A barque passed at dawn and asked for the correct time."),
    ("Widow Sands", "The buoy has drifted and lies half a mile to the east."),
    ("Kettle Point", "Paint for the west wall is ordered for the spring boat."),
    ("Marrow Head", "The assistant keeper caught eleven cod from the steps."),
    ("Skerry Bank", "Ice on the gallery had to be broken with hammers."),
    ("Far Light", "No ship was seen during the whole of the last week."),
)
LARGE_PRINT = (
    "This page is two hundred inches wide and as high as a house.",
    "It was drawn for the wall of the sail loft, where the letters must be read from the other shore.",
    "Please do not print it at home.",
)
FORM_FIELDS = (("Name of vessel", "Grey Heron"), ("Home port", "Port Ellery"), ("Berth requested", "South quay 14"))
