"""Sentence patterns with clauses: who, that, because, if, when. Chinese puts the clause first."""

from random import Random

from attendo.demo_task import lexicon
from attendo.demo_task.lexicon import COMBINATIONS, FUTURE_TIMES, GO, OUTINGS, PAST_TIMES, PHRASES, PRONOUNS, nouns
from attendo.demo_task.noun_phrases import a, the
from attendo.demo_task.people import possessive_phrase, relative, someone, someone_known, two_people
from attendo.demo_task.phrase import Parts, Phrase, pattern, phrase, weave


@pattern(
    "that",
    "{what} that {who} {verb} {when} is very¹ {how}",
    "{who} {when} {verb} 的 {what} 很¹ {how}",
    "verb+what how+what",
)
def thing_that(dice: Random) -> Parts:
    """The book that I bought yesterday is very interesting. 我 昨天 买 的 这本 书 很 有趣"""
    verb, noun = lexicon.NOTED.sample(dice)
    who, when = someone_known(dice), dice.choice(PAST_TIMES)
    how = dice.choice(lexicon.REMARKS_BY_NOUN[noun.name]).plain
    return {"what": the(noun), "who": who, "verb": verb.past_in_clause, "when": when, "how": how}


@pattern("who likes", "{who} who {doing} is¹ {friend}", "{doing} 的 {who} 是¹ {friend}", "who+friend")
def person_who(dice: Random) -> Parts:
    """The girl who likes cats is my classmate. 喜欢 猫 的 这个 女孩 是 我 的 同学"""
    people, friends = dice.choice(_PEOPLE_WHO)
    person = dice.choice(people)
    if dice.random() < 0.5:
        what = dice.choice(lexicon.LIKE.nouns).many
        clause = weave("{like} {what}", "{like} {what}", joins="like+what", like=lexicon.LIKE.third, what=what)
    else:
        clause = weave("can¹ {skill}", "会¹ {skill}", skill=dice.choice(lexicon.SKILLS).base)
    friend = possessive_phrase(dice.choice(PRONOUNS), dice.choice(friends))
    return {"who": the(person), "doing": clause, "friend": friend}


_PEOPLE_WHO = tuple((nouns(people), nouns(friends)) for people, friends in COMBINATIONS["people_who"])


@pattern(
    "because",
    "{who} did¹ not¹ {go} {where} because² {reason}",
    "因为² {reason} ， 所以² {who} 没¹ {go} {where}",
    "where+reason",
)
def because_not_going(dice: Random) -> Parts:
    """I did not go to school because I was tired. 因为 我 很 累 ， 所以 我 没 去 学校"""
    who, where = dice.choice(PRONOUNS).subject, dice.choice(OUTINGS).to
    rained = dice.random() < 0.4
    reason = dice.choice(PHRASES["past_weather"]) if rained else _past_feeling(who, dice.choice(("tired", "busy")))
    return {"who": who, "go": GO.base, "where": where, "reason": reason}


@pattern(
    "because",
    "{who} {verb} {what} because¹ {reason}",
    "因为¹ {reason} ， 所以¹ {who} {verb} {what}",
    "verb+what what+reason",
)
def because_of_need(dice: Random) -> Parts:
    """She bought a sandwich because she was hungry. 因为 她 很 饿 ， 所以 她 买 了 一 个 三明治"""
    who = dice.choice(PRONOUNS).subject
    feeling, things = dice.choice(COMBINATIONS["needs"])
    verb, what = dice.choice((lexicon.EAT, lexicon.BUY)).past, a(dice.choice(nouns(things)))
    return {"who": who, "verb": verb, "what": what, "reason": _past_feeling(who, feeling)}


def _past_feeling(who: Phrase, feeling: str) -> Phrase:
    """I was tired, 我 很 累"""
    return weave("{who} was:who¹ {how}", "{who} 很¹ {how}", head="how", who=who, how=lexicon.FEELINGS[feeling].plain)


@pattern(
    "if",
    "if¹ {weather} {when} ,² {who} {result}",
    "如果¹ {when} {weather} ，² {who} {result}",
    "weather+result",
)
def if_weather(dice: Random) -> Parts:
    """If it rains tomorrow, I will stay at home. 如果 明天 下雨 ， 我 就 待 在 家"""
    if dice.random() < 0.3:
        (home,) = lexicon.locations("home")
        result = weave("will¹ {stay} {where}", "就¹ {stay} {where}", head="where", stay=_STAY, where=home.at)
    else:
        where = dice.choice(OUTINGS).to
        result = weave("will¹ not² {go} {where}", "就¹ 不² {go} {where}", head="where", go=GO.base, where=where)
    weather, when = dice.choice(PHRASES["weather"]), dice.choice(FUTURE_TIMES[:2])
    return {"weather": weather, "when": when, "who": someone(dice), "result": result}


_STAY, _TIME, _MONEY = phrase("stay", "待"), phrase("time", "时间"), phrase("money", "钱")


@pattern(
    "if",
    "if¹ {who} have:who² {time} {when} ,³ {again} will⁴ {go} {where}",
    "如果¹ {who} {when} 有² {time} ，³ {again} 就⁴ {go} {where}",
    "when+where",
)
def if_time(dice: Random) -> Parts:
    """If I have time tomorrow, I will go to the park. 如果 我 明天 有 时间 ， 我 就 去 公园"""
    who, when, where = dice.choice(PRONOUNS).subject, dice.choice(FUTURE_TIMES), dice.choice(lexicon.LEISURE).to
    return {"who": who, "again": who, "time": _TIME, "when": when, "go": GO.base, "where": where}


@pattern(
    "if",
    "if¹ {who} have:who² {money} ,³ {again} will⁴ {buy} {what}",
    "如果¹ {who} 有² {money} ，³ {again} 就⁴ {buy} {what}",
    "buy+what",
)
def if_money(dice: Random) -> Parts:
    """If I have money, I will buy a car. 如果 我 有 钱 ， 我 就 买 一 辆 车"""
    who, what = dice.choice(PRONOUNS).subject, a(dice.choice(nouns("costly")))
    return {"who": who, "again": who, "money": _MONEY, "buy": lexicon.BUY.base, "what": what}


@pattern(
    "when",
    "when¹ {who} {came} ,² {busy} was:busy³ {doing}",
    "当¹ {who} {came} 的 时候¹ ，² {busy} 正在³ {doing}",
    "came+doing",
)
def when_coming(dice: Random) -> Parts:
    """When I came home, she was cooking. 当 我 回到 家 的 时候 ， 她 正在 做饭"""
    (who, other), (came, verbs) = two_people(dice), dice.choice(_COMING)
    busy = other.subject if dice.random() < 0.5 else relative(dice)
    return {"who": who.subject, "came": came, "busy": busy, "doing": dice.choice(verbs).ing}


_COMING = tuple(
    (phrase(english, chinese), lexicon.activities(doings)) for english, chinese, doings in COMBINATIONS["coming"]
)
