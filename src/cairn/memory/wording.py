"""What a question means by its words: which of them ask for something, and what else they reach.

Only questions are treated so. Facts are kept by the words they have (`cairn.core.words`), so an
index that was written before stays right, whatever this module learns.
"""

from __future__ import annotations

import re

from cairn.core.words import LONGEST_QUERY, asked, normal, stem

KIN = 0.5
"""What a related form in a fact counts beside the word itself."""
MOST_WITH_KIN = 50
"""Words of a question that are looked up in other forms too."""
HIRAGANA = 0.4
"""What a pair of Hiragana counts beside Kanji and Katakana: mostly it is an ending."""
SHORTEST_ROOT = 4

_ASKING = (
    # Chinese, both kinds of letters
    *("为什么", "為什麼", "什么时候", "什麼時候", "什么样", "什么", "什麼"),
    *("怎么样", "怎么办", "怎么", "怎麼", "怎样", "怎樣", "如何", "是否", "请问", "請問"),
    *("哪里", "哪裡", "哪儿", "哪个", "哪個", "哪些", "哪天", "哪种", "哪種", "多少", "多久"),
    *("是不是", "有没有", "有沒有", "能不能", "会不会", "會不會", "要不要", "可不可以"),
    *("可以", "应该", "應該", "需要", "一下", "告诉我", "告訴我"),
    # Japanese
    *("でしょうか", "ましたか", "ませんか", "ですか", "ますか", "ください"),
    *("どんな", "どこ", "いつ", "だれ", "どう", "どの", "どれ", "なぜ", "なに"),
    # Korean
    *("인가요", "입니까", "습니까", "합니까", "하나요", "되나요", "있나요", "나요"),
    *("무엇", "무슨", "언제", "어디", "누구", "어떤", "어느", "얼마", "어떻게", "주세요"),
)
_ASKS = re.compile("|".join(sorted(map(re.escape, map(normal, _ASKING)), key=len, reverse=True)))
"""Phrases that ask, whatever is asked for: in scripts without spaces they would leave pairs behind
that fit the sentences of any fact."""

_LONE_KANJI = re.compile(r"(?<![\u3400-\u9fff])[\u3400-\u9fff](?=[\u3041-\u309f])")
"""One with Hiragana behind it is a word of its own, or the stem of one, in Japanese."""

_ENDINGS = (
    *("ization", "isation", "ability", "ibility", "ication", "ational"),
    *("ation", "ition", "ement", "ative"),
    *("ment", "ness", "less", "ical", "ativ"),
    *("anc", "enc", "abl", "ibl", "ist", "ism", "ity", "ion", "ial", "ant", "ent", "ous", "ful"),
    *("iv", "iz", "ic", "al", "er", "or", "ly", "at"),
    *("y", "i"),
)
"""Endings that make another word of an English one; of words that `stem` has gone over."""

_IRREGULAR = (
    "begin began begun|break broke broken|bring brought|build built|buy bought|catch caught|"
    "choose chose chosen|come came|deal dealt|do did done|drink drank drunk|drive drove driven|"
    "eat ate eaten|fall fell fallen|feed fed|feel felt|find found|fly flew flown|forget forgot "
    "forgotten|freeze froze frozen|get got gotten|give gave given|go went gone|grow grew grown|"
    "hear heard|hide hid hidden|hold held|keep kept|know knew known|lead led|learn learnt|leave "
    "left|lend lent|lose lost|make made|mean meant|meet met|pay paid|ride rode ridden|ring rang "
    "rung|rise rose risen|run ran|say said|see saw seen|seek sought|sell sold|send sent|shake "
    "shook shaken|sing sang sung|sit sat|sleep slept|speak spoke spoken|spend spent|stand stood|"
    "steal stole stolen|swim swam swum|take took taken|teach taught|tell told|think thought|throw "
    "threw thrown|understand understood|wake woke woken|wear wore worn|win won|write wrote written|"
    "child children|foot feet|goose geese|half halves|knife knives|leaf leaves|life lives|man men|"
    "mouse mice|person people|shelf shelves|tooth teeth|wife wives|woman women|wolf wolves|"
    "good better best|bad worse worst|far further farthest"
)


def _by_form() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for group in _IRREGULAR.split("|"):
        stems = frozenset(map(stem, group.split()))
        for each in stems:
            found[each] = found.get(each, frozenset()) | stems
    return found


_FORMS = _by_form()


def asked_for(query: str) -> dict[str, float]:
    """The words of a question and how much each counts, as a fact may have them.

    Phrases that only ask are left out, unless there is nothing else.
    """
    if len(query) > LONGEST_QUERY:
        query = f"{query[: LONGEST_QUERY // 2]} {query[-LONGEST_QUERY // 2 :]}"
    said = _ASKS.sub(" ", normal(query))
    found = asked(said) or asked(query)
    if all(map(_is_hiragana, found)):
        return found
    weights = {w: each * (HIRAGANA if _is_hiragana(w) else 1.0) for w, each in found.items()}
    return weights | {letter: 1.0 for letter in _LONE_KANJI.findall(said) if letter in weights}


def _is_hiragana(word: str) -> bool:
    return all("\u3041" <= letter <= "\u309f" for letter in word)


def root(word: str) -> str:
    """What an English word has in common with those that are made of it.

    It need not be a word: `insurance` and `insures` have `insur`. Always how the word begins.
    """
    if not word.isascii() or not word.isalpha():
        return word
    while True:
        for ending in _ENDINGS:
            if word.endswith(ending) and len(word) - len(ending) >= SHORTEST_ROOT:
                word = word[: -len(ending)]
                break
        else:
            return word


def beginnings(words: dict[str, float]) -> dict[str, str]:
    """The root of each word that may have relatives: how those begin."""
    found = {}
    for word in list(words)[:MOST_WITH_KIN]:
        if word.isascii() and word.isalpha() and len(word) >= SHORTEST_ROOT:
            found[word] = root(word)
    return found


def forms(word: str) -> frozenset[str]:
    """The irregular forms of the same word, itself among them; none of any other word."""
    return _FORMS.get(word, frozenset())
