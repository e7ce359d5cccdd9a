"""The language of the invented world: its products, symptoms, requests and the sentences around them.

A template names other templates in braces: `{place}` becomes one of `RULES["place"]`, `{subject}` whatever the
caller binds to it. Private and public tickets come from these same rules; only the products and their pairings differ.
"""

import re
from collections.abc import Mapping

from tools.world.draw import Draw

LABELS: dict[str, str] = {
    "returns": "The customer asks for a refund, an exchange or a way to send the product back.",
    "workshop": "The customer asks for a repair, a technician or a spare part.",
    "helpline": "The customer asks for instructions, advice or a call about using the product.",
    "accounts": "The customer asks about an invoice, a payment, an address or a customer account.",
    "logistics": "The customer asks about a parcel, a courier, a shipment or a delivery date.",
}

STEMS = (
    "Vel", "Om", "Kar", "Tor", "Lum", "Zen", "Bri", "Cor", "Dal", "Fen", "Gal", "Hex", "Jov", "Mor", "Nim", "Pra",
    "Quor", "Ryl", "Sol", "Ul",
)  # fmt: skip
ENDINGS = ("trix", "bra", "vo", "dex", "nova", "mint", "gard", "lio", "phon", "quist", "sera", "tano", "wick", "zel")
MODELS = ("2", "3", "5", "7", "Lite", "Mini", "Pro", "Max")

# (finite, gerund): the two surface forms of one predicate, shared by every product of the world.
SYMPTOMS: tuple[tuple[str, str], ...] = (
    ("overheats while charging", "overheating while charging"), ("hums at night", "humming at night"),
    ("leaks at the base", "leaking at the base"), ("drops the signal", "dropping the signal"),
    ("loses its settings", "losing its settings"), ("stops after ten minutes", "stopping after ten minutes"),
    ("smells of burnt plastic", "smelling of burnt plastic"), ("flickers on start", "flickering on start"),
    ("drains the battery", "draining the battery"), ("freezes during updates", "freezing during updates"),
    ("shows the wrong time", "showing the wrong time"), ("rattles at low speed", "rattling at low speed"),
    ("skips the last step", "skipping the last step"), ("jams when cold", "jamming when cold"),
    ("beeps for hours", "beeping for hours"), ("forgets the password", "forgetting the password"),
    ("scratches the floor", "scratching the floor"), ("blocks the door sensor", "blocking the door sensor"),
    ("heats one side", "heating one side"), ("ignores the remote", "ignoring the remote"),
    ("prints blank pages", "printing blank pages"), ("resets every morning", "resetting every morning"),
    ("locks after one use", "locking after one use"), ("misreads the weight", "misreading the weight"),
    ("buzzes near the router", "buzzing near the router"), ("spills when tilted", "spilling when tilted"),
    ("blinks in red", "blinking in red"), ("trips the fuse", "tripping the fuse"),
    ("cuts the recording short", "cutting the recording short"), ("turns off in rain", "turning off in rain"),
    ("mixes up the channels", "mixing up the channels"), ("sticks at half power", "sticking at half power"),
    ("fogs the display", "fogging the display"), ("wakes up by itself", "waking up by itself"),
    ("shakes on the table", "shaking on the table"), ("sends double alerts", "sending double alerts"),
    ("refuses the new card", "refusing the new card"), ("slows down when full", "slowing down when full"),
    ("warps in the sun", "warping in the sun"), ("clicks before starting", "clicking before starting"),
)  # fmt: skip

STATEMENTS = (
    "my {subject} {finite}",
    "the {subject} {finite} {often}",
    "{since} my {subject} {finite}",
    "{since} our {subject} keeps {gerund}",
    "my {subject} keeps {gerund} {often}",
    "the {subject} started {gerund} {when}",
    "{notice} that the {subject} {finite}",
    "{notice} that my {subject} still {finite}",
    "our {subject} {finite}, {annoyed}",
    "the {subject} from your {place} shop {finite}",
    "the trouble is that our {subject} {finite}",
    "in {room} my {subject} {finite} {often}",
)
EARLIER = (
    "{before} I wrote because my {subject} {finite}",
    "my neighbour says the {subject} {finite} as well",
    "I know that the {subject} {finite}, but that is another ticket",
    "someone in your forum wrote that the {subject} {finite}",
)
ASIDES = (
    "I also own the {subject} and it works well",
    "{before} I had the {subject} and liked it",
    "I bought it together with the {subject}",
    "the {subject} of my {relative} has no such problem",
    "I was thinking about getting the {subject} instead",
    "I use it next to the {subject} in {room}",
)
NAMELESS = ("device", "unit", "machine", "appliance", "gadget")

# A request that decides the team by itself.
REQUESTS: dict[str, tuple[str, ...]] = {
    "returns": (
        "{please} give me a refund", "I want my money back {deadline}", "how do I send it back {deadline}",
        "I would like to exchange it for {other}", "{please} accept the return and refund the price",
        "I am sending it back, {please} confirm the refund", "can I swap it for {other}",
    ),
    "workshop": (
        "{please} send a technician to {town}", "I need a repair {deadline}", "where can I get the spare part for it",
        "{please} repair it {deadline}", "can your workshop fix it {deadline}",
        "{please} send me a spare part", "I would like a technician to look at it",
    ),
    "helpline": (
        "{please} call me back with instructions", "which steps should I follow to set it up",
        "can somebody explain how to use it", "I need advice on the settings", "where do I find the manual",
        "{please} call me and guide me through the menu", "what do you advise me to try next",
    ),
    "accounts": (
        "{please} correct my invoice {deadline}", "why was the payment taken twice",
        "{please} change my billing address",
        "I cannot log in to my customer account", "{please} send the invoice again",
        "the payment is missing from my account", "{please} update the address on my account",
    ),
    "logistics": (
        "where is the parcel with the rest of my shipment", "the courier never came to {town}",
        "{please} tell me the delivery date", "my parcel has been stuck in {town} {time}",
        "can the courier deliver it {deadline}", "{please} track the shipment for me",
        "the delivery is late {again}",
    ),
}  # fmt: skip

# A request that leaves the team to the product and its symptom.
OPEN_REQUESTS = (
    "{please} look into it", "{please} tell me what happens now", "what can be done about this",
    "{please} let me know {deadline}", "I hope you can help {deadline}", "{please} take care of this {deadline}",
    "I am waiting for your answer", "how do we go on from here", "{please} pass this on to the right team",
    "I would be glad about an answer {deadline}", "who is looking after this", "{please} sort this out {again}",
)  # fmt: skip
# They use the words of a request without making it.
DECOYS = (
    "I do not want a refund", "I am not asking for an exchange", "the return label can stay in the box",
    "a technician was here {when}", "I do not need a spare part", "the last repair changed nothing",
    "I know the manual by heart", "nobody has to call me", "your advice from {month} did not help",
    "the invoice is fine", "the payment went through {when}", "my account shows nothing unusual",
    "the parcel came on time", "the courier was friendly", "the delivery was quick",
)  # fmt: skip

RULES: dict[str, tuple[str, ...]] = {
    "opening": (
        "hello", "good {daytime}", "dear support team", "hello from {town}", "{first} {last} here",
        "this is {first} {last} from {town}", "I am writing for my {relative}", "I bought it {time} ago",
        "we ordered it in {month}", "my {relative} gave it to me {time} ago",
        "I have been a customer for {number} years", "it stands in {room} and gets used every {daytime}",
        "we use it in our {place} in {town}",
    ),
    "effort": (
        "I {tried} and {tried}", "I {tried}, but nothing changed", "my {relative} {tried} {number} times",
        "even after I {tried} it is the same", "I {tried} {when} and it helped for {number} days",
        "we {tried} because your {page} says so", "I already {tried}", "nobody in the {place} could help",
        "it got worse {when}", "it was fine for {number} weeks", "it happens in {room} and in {room}",
    ),
    "closing": (
        "thank you", "best regards, {first}", "many thanks from {town}", "kind regards, {first} {last}",
        "thanks for your time", "I can be reached every {daytime}", "have a nice {daytime}",
        "greetings from {town}",
    ),
    "tried": (
        "changed the cable", "read your {page}", "cleaned the filter", "pressed the side button",
        "moved it to {room}", "tried another socket", "removed the cover", "took out the battery",
        "installed the new version", "asked in the {place}", "let it rest overnight", "started it again",
        "checked every screw", "wiped the contacts",
    ),
    "since": (
        "since {month}", "since the last update", "for {number} days", "for {number} weeks",
        "since we moved to {town}", "after {number} hours of use", "almost every {daytime}",
        "ever since I unpacked it",
    ),
    "when": ("yesterday", "last week", "{time} ago", "in {month}", "this {daytime}", "on {weekday}"),
    "often": (
        "all the time", "every {daytime}", "{number} times a day", "on most days", "again and again",
        "on {weekday}",
    ),
    "before": ("in {month}", "{time} ago", "last year", "on {weekday}", "before that"),
    "time": ("{number} days", "{number} weeks", "{number} months", "a year", "a while"),
    "deadline": (
        "today", "soon", "this week", "before {weekday}", "by {month}", "when you can", "before I travel to {town}",
    ),
    "again": ("again", "at last", "this time", "for the {ordinal} time"),
    "annoyed": (
        "which wakes my {relative}", "which is tiring", "and I am tired of it", "as my {relative} noticed", "sadly",
    ),
    "notice": (
        "I noticed", "my {relative} says", "we found out {when}", "it seems", "I have to report",
        "it turned out {when}",
    ),
    "please": ("please", "could you", "would you please", "I ask you to", "kindly"),
    "other": ("another colour", "a bigger one", "a new one", "another model", "the older version"),
    "page": ("help page", "leaflet", "first answer", "video", "web page"),
    "number": ("two", "three", "four", "five", "six", "eight", "ten", "twelve"),
    "ordinal": ("second", "third", "fourth", "fifth"),
    "daytime": ("morning", "afternoon", "evening", "day", "weekend"),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "month": (
        "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
        "November", "December",
    ),
    "room": (
        "the kitchen", "the hall", "the office", "the garage", "the bedroom", "the cellar", "the studio",
        "the garden",
    ),
    "place": (
        "bakery", "school", "library", "market", "hotel", "clinic", "corner", "harbour", "station", "village",
    ),
    "relative": (
        "mother", "father", "sister", "brother", "daughter", "son", "aunt", "uncle", "colleague", "neighbour",
    ),
    "town": (
        "Alderwick", "Brennmoor", "Calder Bay", "Dunfell", "Eastmarsh", "Farrowby", "Glenholt", "Harrowgate",
        "Inverley", "Kestrel Hill", "Lowmere", "Marrowstone", "Northwold", "Oakhaven", "Penbrook", "Ravensford",
        "Stonely", "Thornbury",
    ),
    "first": (
        "Mira", "Jonas", "Elif", "Tomas", "Ines", "Rafael", "Nadia", "Owen", "Petra", "Hugo", "Salma", "Viktor",
        "Leona", "Marek", "Aisha", "Felix", "Greta", "Diego", "Hana", "Anton", "Clara", "Yusuf", "Rosa", "Emil",
        "Tessa", "Bruno", "Lena", "Karim", "Olga", "Simon", "Freya", "Pablo",
    ),
    "last": (
        "Holt", "Varga", "Lindner", "Okafor", "Brandt", "Castell", "Dorsey", "Eklund", "Farkas", "Grieve", "Hadley",
        "Ivanek", "Jessop", "Kohler", "Larsen", "Moreau", "Novak", "Ortega", "Pruitt", "Quill", "Rossi", "Sander",
        "Tanaka", "Ulrich", "Vance", "Wexler", "Yardley", "Zeman", "Abbott", "Bellamy", "Crane", "Duarte",
    ),
}  # fmt: skip

_ASKING = frozenset(("how", "where", "can", "could", "would", "why", "which", "what", "who"))
_SLOT = re.compile(r"\{(\w+)\}")


def expand(template: str, draw: Draw, slots: Mapping[str, str] | None = None) -> str:
    """Replace every name in braces, first from `slots`, otherwise by a random expansion of its rule."""
    bound = slots or {}

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        return bound[name] if name in bound else expand(draw.pick(RULES[name]), draw)

    return _SLOT.sub(replacement, template)


def sentence(templates: tuple[str, ...], draw: Draw, slots: Mapping[str, str] | None = None) -> str:
    """One of the templates, expanded, with a capital letter and a full stop or question mark."""
    words = expand(draw.pick(templates), draw, slots)
    mark = "?" if words.split()[0] in _ASKING else "."
    return f"{words[0].upper()}{words[1:]}{mark}"


def product_names(draw: Draw, count: int) -> list[str]:
    """`count` names of products, no two of which share their first word.

    Every stem, ending and model is used again and again: a small language model can spell a name it never saw.
    """
    families = draw.shuffled([stem + ending for stem in STEMS for ending in ENDINGS])
    return [f"{family} {draw.pick(MODELS)}" for family in families[:count]]
