"""Standing instructions: sentences of persons that read as a rule for all that follows.

They are found by signs of language alone, a fixed list of words, so one that is put otherwise is
not found, and a sentence that only sounds like one is. Nothing is ever done because of a sign: what
is found is kept in a person's words, where a summary would lose it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

STANDING_KEPT, STANDING_CHARS = 12, 200
STANDING_FIRST = 4
"""So many of the instructions are the first that were given; the others are the last."""
FROM_ONE = 6
"""So many are taken from one message, the first and the last ones: a pasted text may hold many."""
LOOKED_AT = 4_000
"""Characters at either end of a message in which they are looked for."""
LEAD_CHARS = 60
"""So much of a sentence that is too long stays before the sign in it."""
NOTE = "[runtime]"
"""How each line of the runtime's own begins."""

_NO_RULE = "".join(
    rf"(?<!\b{word} )"
    for word in (
        *("i", "we", "they", "it", "he", "she", "who", "that", "which", "there", "why", "and i"),
        *("have", "has", "had", "is", "are", "was", "were", "will", "can", "could", "would"),
        *("i've", "i'd", "it's", "they've", "we've", "he's", "she's", "almost", "nearly", "as"),
    )
)
"""Behind these words "never" and "do not" tell what is, and not what shall be."""
_STARTS = "(?:^|(?<=[,;:.!(\"'] )|(?<=[，、；：。！（「“]))"
"""Where a clause begins."""
_ENGLISH = (
    r"\b(?:from (?:now|here|this point|this moment) on(?:wards?)?|from today(?!'s)|going forward"
    r"|henceforth|no longer (?:to be|allowed|permitted)"
    r"|as of (?:now|today)|in (?:the )?future|until (?:further notice|i say|i tell)|at all times"
    r"|unless i (?:say|tell|ask)|without exception|under no circumstances?|by no means"
    r"|no matter what|every time|each time|whenever|for the rest of|(?<!there )must(?:n't)?"
    r"|be sure to|remember (?:to|that)|keep in mind|bear in mind|prefer|avoid"
    r"|i (?:always|never) (?:want|need|prefer|wish|like|would)"
    r"|you (?:should|shall|may only|may not|can only|can no longer|are not allowed)|not allowed"
    r"|forbidden"
    r"|prohibited|off[ -]limits|only (?:ever|use|answer|reply|write|contact"
    r"|call|send|speak|work|in|if|when|after|with|through|via)|(?:use|answer|reply|write|contact"
    r"|call|send|speak|work) only|(?:i'd|i would) rather)\b"
    rf"|(?=always|never|no longer|do not|don't|dont){_NO_RULE}(?:always|never(?! mind)|no longer"
    r"|(?:do not|don't|dont)(?! (?:have|know|remember|think|understand|see|care|get|need)\b))\b"
    rf"|{_STARTS}(?:please |and |but |then |so )?(?:make sure|stop [a-z]{{2,20}}ing)\b"
)
_GERMAN = (
    r"\b(?:ab (?:jetzt|sofort|heute)|von (?:nun|jetzt) an|künftig|zukünftig|in zukunft|fortan"
    r"|immer(?! noch| wieder)|niemals|nie wieder|nie mehr|stets|keinesfalls|grundsätzlich"
    r"|auf keinen fall|unter keinen umständen|unbedingt|müssen|musst|muss|darfst|darf|dürfen"
    r"|nur noch|nicht mehr|ausschließlich|jedes ?mal|bitte (?:nicht|kein|keine|keinen|nur)"
    r"|verboten|achten sie darauf|achte darauf|stell(?:e|en sie)? sicher|bevorzuge|bevorzugt"
    r"|merk dir|vermeide|vermeiden|verwende nur|nutze nur)\b"
    rf"|{_STARTS}nie "
)
_FRENCH = (
    r"\b(?:désormais|dorénavant|à (?:partir de maintenant|l'avenir)|toujours(?! pas)|jamais"
    r"|n'oublie[zs]? pas|il (?:ne )?faut|devez|doit|doivent|interdit|uniquement|seulement"
    r"|en aucun cas|sous aucun prétexte|(?:à )?chaque fois|veille[zr]? à|assure[zr]?-(?:toi|vous)"
    r"|évite[zr]?|préfère|préférez|systématiquement)\b"
    rf"|{_STARTS}(?:ne |n')[^\W\d_]{{2,20}}+(?: [^\W\d_]{{1,20}}+)? (?:pas|plus)\b"
)
_SPANISH_PORTUGUESE = (
    r"\b(?:a partir de (?:ahora|hoy|agora|hoje)|de (?:ahora en adelante|agora em diante)"
    r"|daqui (?:em|para) (?:diante|a frente)|en adelante|en el futuro|no futuro"
    r"|siempre|sempre|nunca|jamás|deben?|debes|devem?|prohibido|proibido|únicamente|solamente"
    r"|somente|apenas|bajo ninguna circunstancia|en ningún caso|em hipótese alguma|cada vez"
    r"|toda vez|asegúrate|asegúrese|certifique-se|evit[ae]|prefier[eo]|prefiro|recuerda|lembre-se"
    r"|s[oó]lo (?:usa|use|en|responde)|us[ae] s[oó]lo|no (?:vuelvas|uses|utilices|toques|contactes"
    r"|envíes|llames|borres|respondas|escribas|hagas|menciones))\b"
    rf"|{_STARTS}não [^\W\d_]"
)
_ITALIAN = (
    r"\b(?:d'ora in poi|da (?:ora|adesso|oggi) in poi|in futuro|mai più|dev[ei]|devono|vietato"
    r"|soltanto|esclusivamente|in nessun caso|ogni volta|assicurati|preferisco|ricordati|usa solo"
    r"|solo in|non [^\W\d_]{2,20}+ (?:[^\W\d_]{1,20}+ )?mai)\b"
    rf"|{_STARTS}non [^\W\d_]{{2,20}}re\b|{_STARTS}mai "
)
_RUSSIAN = (
    r"\b(?:отныне|впредь|с этого момента|с сегодняшнего дня|всегда|никогда|ни в коем случае|нельзя"
    r"|запрещено|обязательно|долж(?:ен|на|но|ны)|каждый раз|больше не|не надо|предпочитаю"
    r"|избегай(?:те)?|используй(?:те)? только|отвечай(?:те)? только|только на)\b"
    rf"|{_STARTS}не [^\W\d_]{{2,20}}(?:й|йте|ь|ьте|и|ите)\b"
)
_CHINESE = (
    rf"(?:{_STARTS}|(?<=[从從请請我你您那自]))(?:以[后後])|从(?:现在|今天|今|此)(?:起|开始|以后|往后|后)"
    r"|從(?:現在|今天|今|此)(?:起|開始|以後|往後|後)|今[后後]|始[终終]|一律|永[远遠]|[绝絕决決]不"
    r"|[绝絕][对對]不|切勿|(?<!要)不要|不[准許许]|不得(?![不已了])|不能再|不再|禁止|[严嚴]禁"
    r"|必[须須]|[务務]必|一定要|只能|只[许許准用要](?!有)|[请請]勿|每次|凡是|[统統]一用|默[认認]用"
    r"|除非|[记記]住|牢[记記]|尽量|盡量|[优優]先|[总總]是用"
    rf"|(?:{_STARTS}|千万|千萬|[请請再])[别別](?![人的处處])|[别別]再"
)
_JAPANESE = (
    r"今後|これからは|今から|今日から|以後|常に|必ず|いつも|絶対に?|決して|毎回|厳禁"
    r"|ては(?:いけ|なら|だめ)|ないで(?:くだ|下さ|ほし|欲し|。|$)|ないこと|なければ(?:なら|いけ)"
    r"|(?:だけ|のみ)(?:を|で|に|使|答|返|許)|ようにして|(?:する|使う|答える)こと(?:。|$)|を?優先"
)
_KOREAN = (
    r"앞으로|이제부터|지금부터|오늘부터|항상|언제나|절대로?|결코|반드시|금지|매번|때마다|무조건"
    r"|지 ?마(?:세요|십시오|라|시|\b|요)|지 ?말(?:아|고|것)|만 ?(?:사용|써|쓰|답)|우선"
)
SPACED = re.compile(
    r"\b(?=[^\W\d_])"  # most places of a text are none where a sign can begin
    rf"(?:{_ENGLISH}|{_GERMAN}|{_FRENCH}|{_SPANISH_PORTUGUESE}|{_ITALIAN}|{_RUSSIAN})"
)
WIDE = re.compile(rf"(?=[^\x00-\x7f])(?:{_CHINESE}|{_JAPANESE}|{_KOREAN})")
"""The signs, in small letters and with single blanks: words, none of which is tried in turns."""
ASKS = re.compile(
    r"\b(?:(?:can|could|would|will) you|please|bitte|kannst du|können sie|könntest|könnten"
    r"|pouvez|peux-tu|pourriez|s'il|por favor|puedes|podrías|per favore|puoi|potresti|você pode)\b"
    r"|пожалуйста|можете|можешь|[请請]|能不能|可不可以|くださ|下さ|くれ|いただけ|もらえ|주세요|주실"
)
"""What makes a question a request."""
_ENDS = re.compile(r"(?<=[.!?]) |(?<=[。！？｡])")
_PARTS = re.compile(r"(?<=[;；])|\n")
_NUMBER = r"(?:\d{1,2}[.)）、．]|[（(]\d{1,2}[)）])(?!\d)"
_ITEM = re.compile(rf"(?:[-*•·+–]|{_NUMBER}) ?")
_NUMBERED = re.compile(rf"(?<=[ :：;；。，、]){_NUMBER} ?")
_LEAD = re.compile(rf"[^:：]{{1,{STANDING_CHARS // 2}}}[:：](?= ?{_NUMBER})")
"""What stands in front of numbered items on one line."""
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]{2}")
"""Signs of Chinese and Japanese, between which no blank stands."""
_WRAPPED = range(55, 101)
"""Columns at the end of which a line is taken for one that was broken to fit a page."""
_SALUTATION = 40
"""A line of fewer columns that ends in a comma, in front of a capital letter, may be one."""
_LEADS_ON = frozenset(
    (
        *("a", "an", "the", "to", "of", "and", "or", "for", "with", "from", "your", "my", "our"),
        *(
            "that",
            "which",
            "whose",
            "if",
            "because",
            "at",
            "into",
            "is",
            "are",
            "be",
            "please",
            "always",
            "never",
            "only",
            "not",
            "must",
            "don't",
        ),
        *("der", "die", "das", "den", "dem", "ein", "eine", "und", "oder", "zu", "für", "bitte"),
        *("le", "la", "les", "un", "une", "de", "du", "des", "et", "ou", "el", "los", "y", "il"),
    )
)
"""No sentence ends with one of them: the next line goes on with it."""
_SHORTENED = frozenset(
    (
        *("mr", "mrs", "ms", "dr", "prof", "st", "no", "nr", "vs", "e.g", "i.e", "etc", "inc"),
        *("ltd", "co", "jr", "sr", "approx", "art", "fig", "vol", "z.b", "d.h", "bzw", "ca", "usw"),
        *("str", "tel", "al", "mme", "p.ex", "sra", "ul", "г", "ул", "т.е"),
    )
)
"""A full stop behind one of them, or behind a single letter or number, ends no sentence."""
_QUOTES = str.maketrans({"’": "'", "‘": "'", "\u3000": " ", "\u00a0": " "})
_BARE = " \t.,;:!?。！？；，、…\"'"


def instructions_in(text: str) -> list[str]:
    """The sentences of a person's message that read as standing instructions, each once.

    What a person quotes (lines that begin with `>`, and what stands between lines of three
    backticks) is not theirs and does not count, nor does a line that begins as notes of the
    runtime do. What stands under a line that is an instruction and ends in a colon counts with it:
    a list, or a sentence. A single line break inside a sentence is none of its ends.
    """
    if len(text) <= 2 * LOOKED_AT:
        found = _instructions(_sentences(text))
    else:
        quoting = f"\n{text[:-LOOKED_AT]}".count("\n```") % 2 == 1
        head = [*_sentences(text[:LOOKED_AT])]
        tail = [*_sentences(text[-LOOKED_AT:], quoting=quoting)]
        found = _instructions([*(head[:-1] or head), *(tail[1:] or tail)])  # the cut goes through
    kept = [*{_key(each): each for each in found}.values()]
    return kept if len(kept) <= FROM_ONE else [*kept[: FROM_ONE // 2], *kept[-FROM_ONE // 2 :]]


def with_more(standing: Sequence[str], more: Iterable[str]) -> tuple[str, ...]:
    """Instructions and those given after them, the first ones and the last ones, in their order.

    One that is given again stands where it was given last: so what contradicts reads in order.
    """
    kept = {_key(each): each for each in standing}
    for each in more:
        kept.pop(_key(each), None)
        kept[_key(each)] = each
        if len(kept) > STANDING_KEPT:
            del kept[[*kept][STANDING_FIRST]]
    return tuple(kept.values())


def left_out(standing: Sequence[str], text: str) -> tuple[str, ...]:
    """Those that a text does not hold in their words and their order.

    From the first one that is missing on all are, so that what is added behind the text ends with
    the last one, and no earlier one reads as if it had been given after it.
    """
    within, at = _key(text), 0
    for n, each in enumerate(standing):
        begin = within.find(_key(each), at)
        if begin < 0:
            return tuple(standing[n:])
        at = begin + 1
    return ()


def _key(text: str) -> str:
    """Words alone: the same instruction, however it is spaced and ended."""
    return " ".join(text.translate(_QUOTES).lower().split()).strip(_BARE)


def _instructions(sentences: Iterable[str]) -> list[str]:
    found: list[str] = []
    heading, listed = "", False
    for said in sentences:
        item = _ITEM.match(said)
        bare = said[item.end() :] if item else said
        if item and heading:
            if not listed:
                found.pop()  # the heading says nothing without its list
            found.append(_within(f"{heading} {bare}", 0))
            listed = True
        elif bare:
            place = _sign(bare)
            if heading and not listed:
                found.pop()  # what is to be done, or not, stands behind the colon
                found.append(_within(f"{heading} {bare}", 0))
                place = -1
            elif place >= 0:
                found.append(_within(bare, place))
            heading = found[-1] if place >= 0 and bare[-1] in ":：" else ""
            listed = False
        elif listed:
            heading = ""
    return found


def _sign(sentence: str) -> int:
    """Where the sign of an instruction stands in a sentence; -1 for none."""
    read = sentence.translate(_QUOTES).lower()
    match = SPACED.search(read) or (None if read.isascii() else WIDE.search(read))
    if match is None or (read[-1:] in "?？" and ASKS.search(read) is None):
        return -1
    return match.start()


def _within(sentence: str, sign: int) -> str:
    """A sentence; of one that is too long the part around its sign."""
    if len(sentence) <= STANDING_CHARS:
        return sentence
    begin = max(0, sign - LEAD_CHARS)
    if begin:
        begin = sentence.find(" ", begin, sign) + 1 or begin
    end = begin + STANDING_CHARS - 2
    if end < len(sentence):
        end = max(sentence.rfind(" ", sign + LEAD_CHARS, end + 1), 0) or end
    more = "…" if end < len(sentence) else ""
    return f"{'…' if begin else ''}{sentence[begin:end]}{more}"


def _sentences(text: str, *, quoting: bool = False) -> Iterator[str]:
    """The sentences of a text on one line each, without those that are quoted; empty for a gap."""
    held: list[str] = []
    for line in text.splitlines():
        plain = " ".join(line.split())
        fence = plain.startswith("```")
        own = not (fence or quoting or plain.startswith((">", NOTE)))
        quoting = quoting != fence
        if held and not (own and _goes_on(held[-1], plain)):
            yield from _of_line("".join(held))
            held = []
        if own and plain:
            held += [_between(held[-1], plain), plain] if held else [plain]
        elif own:
            yield ""
    if held:
        yield from _of_line("".join(held))


def _goes_on(line: str, following: str) -> bool:
    """Whether a sentence that a line has begun goes on in the next one."""
    if not following or _ITEM.match(following):
        return False
    if _has_ended(line, shortened=_SHORTENED):
        return False
    if following[0].isupper() and line[-1] == "," and len(line) < _SALUTATION:
        return False
    if following[0].islower() or _leads_on(line):
        return True
    caseless = _columns(line[-1] + following[0]) == 4
    return caseless and line[-1] not in ":：" and (_sign(line) < 0 or _sign(following) < 0)


def _between(line: str, following: str) -> str:
    """What takes the place of a line break; it stays where only the letters speak against it."""
    if not _leads_on(line):
        return "\n"
    return "" if _UNSPACED.fullmatch(line[-1] + following[0]) else " "


def _columns(text: str) -> int:
    return len(text) + sum(each >= "\u1100" for each in text)


def _leads_on(line: str) -> bool:
    """Whether a line that ends no sentence shows by itself that the next one belongs to it."""
    if line[-1] in ":：":
        return False
    if line[-1] in ",，、;；." or line[line.rfind(" ") + 1 :].lower() in _LEADS_ON:
        return True
    return _columns(line) in _WRAPPED


def _has_ended(part: str, *, shortened: frozenset[str] = frozenset()) -> bool:
    """Whether a sentence ends with this part of a text, and not only a shortened word.

    Within a line a single letter or a number of two digits counts as one; in front of a line break,
    where most full stops are real, only those that are given.
    """
    bare = part.rstrip("\"')”’»」』）")
    if bare[-1:] != ".":
        return bare[-1:] in {*"!?。！？｡…"}
    word = bare[max(bare.rfind(" "), bare.rfind("\n")) + 1 : -1].lower().lstrip("(\"'")
    if shortened:
        return word not in shortened
    return len(word) >= 2 and word not in _SHORTENED and not (word.isdigit() and len(word) < 3)


def _of_line(line: str) -> Iterator[str]:
    if _ITEM.match(line):  # what one item of a list says belongs together
        yield line.replace("\n", " ")
        return
    said, held = list[str](), list[str]()
    for part in _ENDS.split(line):
        held.append(part)
        if _has_ended(part) or not part.endswith("."):
            said.append(" ".join(filter(None, map(str.strip, held))))
            held = []
    said.append(" ".join(filter(None, map(str.strip, held))))
    lead = next((n for n, each in enumerate(said) if _LEAD.match(each)), len(said))
    last = max((n for n, each in enumerate(said) if _ITEM.match(each)), default=0)
    if last > lead:  # numbered items may be sentences
        said[lead : last + 1] = [" ".join(said[lead : last + 1])]
    for each in filter(None, said):
        yield from _whole(each)


def _whole(sentence: str) -> Iterator[str]:
    """A sentence; one that is too long in its parts, with what they are parts of."""
    if len(sentence) <= STANDING_CHARS:
        yield sentence.replace("\n", " ")
        return
    lead = _LEAD.match(sentence)
    if lead is not None and _sign(lead.group().replace("\n", " ")) >= 0:
        parts = [lead.group(), *_NUMBERED.split(sentence[lead.end() - 1 :])[1:]]
        of = parts[0]
        yield from (f"{of} {part.strip()}".replace("\n", " ") for part in parts[1:])
        return
    yield from filter(None, map(str.strip, _PARTS.split(sentence)))
