"""Sentence patterns with clauses: who, that, because, if, when. Chinese puts the clause first."""

from random import Random

from attendo.demo_task import verbs
from attendo.demo_task.noun_phrases import a
from attendo.demo_task.nouns import FEELINGS, REMARKS_BY_NOUN, nouns
from attendo.demo_task.people import (
    PRONOUNS,
    have,
    possessive_phrase,
    relative,
    someone,
    someone_known,
    two_people,
    was,
)
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.places import FUTURE_TIMES, HOME, LEISURE, OUTINGS, PAST_TIMES
from attendo.demo_task.words import Adjective


def thing_that(dice: Random) -> Phrase:
    """The book that I bought yesterday is very interesting. 我 昨天 买 的 这本 书 很 有趣"""
    verb, noun = verbs.NOTED.sample(dice)
    return weave(
        "the¹ {what} that² {who} {verb} {when} is very³ {how}",
        f"{{who}} {{when}} {{verb}} 的 这{noun.measure}¹@what {{what}} 很³ {{how}}",
        joins="verb+what how+what",
        what=noun.one,
        who=someone_known(dice),
        verb=verb.past_in_clause,
        when=dice.choice(PAST_TIMES),
        how=dice.choice(REMARKS_BY_NOUN[noun.name]).plain,
    )


def person_who(dice: Random) -> Phrase:
    """The girl who likes cats is my classmate. 喜欢 猫 的 这个 女孩 是 我 的 同学"""
    people, friends = dice.choice(_PEOPLE_WHO)
    person = dice.choice(people)
    if dice.random() < 0.5:
        doing = weave(
            "{like} {what}",
            "{like} {what}",
            joins="like+what",
            like=verbs.LIKE.third,
            what=dice.choice(verbs.LIKE.nouns).many,
        )
    else:
        doing = weave("can¹ {skill}", "会¹ {skill}", skill=dice.choice(verbs.SKILLS).base)
    return weave(
        "the¹ {who} who² {doing} is³ {friend}",
        f"{{doing}} 的 这{person.measure}¹@who {{who}} 是³ {{friend}}",
        joins="who+friend",
        who=person.one,
        doing=doing,
        friend=possessive_phrase(dice.choice(PRONOUNS), dice.choice(friends)),
    )


_PUPILS = nouns("children student")
_PEOPLE_WHO = (
    (_PUPILS, nouns("friend neighbour classmate")),
    (tuple(noun for noun in nouns("adults jobs") if noun not in _PUPILS), nouns("friend neighbour colleague")),
)


def because_not_going(dice: Random) -> Phrase:
    """I did not go to school because I was tired. 因为 我 很 累 ， 所以 我 没 去 学校"""
    who = dice.choice(PRONOUNS).subject
    return weave(
        "{who} did¹ not¹ {go} {where} because² {reason}",
        "因为² {reason} ， 所以² {who} 没¹ {go} {where}",
        joins="where+reason",
        who=who,
        go=verbs.GO.base,
        where=dice.choice(OUTINGS).to,
        reason=dice.choice(_RAINED) if dice.random() < 0.4 else _past_feeling(who, dice.choice(_EXCUSES)),
    )


def because_of_need(dice: Random) -> Phrase:
    """She bought a sandwich because she was hungry. 因为 她 很 饿 ， 所以 她 买 了 一 个 三明治"""
    who = dice.choice(PRONOUNS).subject
    feeling, things = dice.choice(_NEEDS)
    return weave(
        "{who} {verb} {what} because¹ {reason}",
        "因为¹ {reason} ， 所以¹ {who} {verb} {what}",
        joins="verb+what what+reason",
        who=who,
        verb=dice.choice((verbs.EAT, verbs.BUY)).past,
        what=a(dice.choice(things)),
        reason=_past_feeling(who, feeling),
    )


def _past_feeling(who: Phrase, feeling: Adjective) -> Phrase:
    """I was tired, 我 很 累"""
    return weave(f"{{who}} {was(who)}¹ {{how}}", "{who} 很¹ {how}", head="how", who=who, how=feeling.plain)


_FEELINGS = {feeling.name: feeling for feeling in FEELINGS}
_EXCUSES = tuple(_FEELINGS[name] for name in ("tired", "busy"))
_NEEDS = (
    (_FEELINGS["hungry"], nouns("snacks eggs apple banana pear potato")),
    (_FEELINGS["thirsty"], nouns("orange pear watermelon peach")),
)
_RAINED = tuple(
    weave("it {rained}", "{rained}", head="rained", rained=phrase(english, chinese))
    for english, chinese in (("rained", "下雨 了"), ("snowed", "下雪 了"))
)


def if_weather(dice: Random) -> Phrase:
    """If it rains tomorrow, I will stay at home. 如果 明天 下雨 ， 我 就 待 在 家"""
    if dice.random() < 0.3:
        result = weave("will¹ {stay} {where}", "就¹ {stay} {where}", head="where", stay=_STAY, where=HOME.at)
    else:
        where = dice.choice(OUTINGS).to
        result = weave("will¹ not² {go} {where}", "就¹ 不² {go} {where}", head="where", go=verbs.GO.base, where=where)
    return weave(
        "if¹ {weather} {when} ,² {who} {result}",
        "如果¹ {when} {weather} ，² {who} {result}",
        joins="weather+result",
        weather=dice.choice(_BAD_WEATHER),
        when=dice.choice(FUTURE_TIMES[:2]),
        who=someone(dice),
        result=result,
    )


_STAY = phrase("stay", "待")
_BAD_WEATHER = (phrase("it rains", "下雨"), phrase("it snows", "下雪"), phrase("it is windy", "刮风"))


def if_time(dice: Random) -> Phrase:
    """If I have time tomorrow, I will go to the park. 如果 我 明天 有 时间 ， 我 就 去 公园"""
    who = dice.choice(PRONOUNS).subject
    return weave(
        f"if¹ {{who}} {have(who)}² {{time}} {{when}} ,³ {{again}} will⁴ {{go}} {{where}}",
        "如果¹ {who} {when} 有² {time} ，³ {again} 就⁴ {go} {where}",
        joins="when+where",
        who=who,
        again=who,
        time=_TIME,
        when=dice.choice(FUTURE_TIMES),
        go=verbs.GO.base,
        where=dice.choice(LEISURE).to,
    )


def if_money(dice: Random) -> Phrase:
    """If I have money, I will buy a car. 如果 我 有 钱 ， 我 就 买 一 辆 车"""
    who = dice.choice(PRONOUNS).subject
    return weave(
        f"if¹ {{who}} {have(who)}² {{money}} ,³ {{again}} will⁴ {{buy}} {{what}}",
        "如果¹ {who} 有² {money} ，³ {again} 就⁴ {buy} {what}",
        joins="buy+what",
        who=who,
        again=who,
        money=_MONEY,
        buy=verbs.BUY.base,
        what=a(dice.choice(_DEAR)),
    )


_TIME, _MONEY = phrase("time", "时间"), phrase("money", "钱")
_DEAR = nouns("car motorcycle bicycle boats devices furniture coat skirt guitar house")


def when_coming(dice: Random) -> Phrase:
    """When I came home, she was cooking. 当 我 回到 家 的 时候 ， 她 正在 做饭"""
    (who, other), (came, doings) = two_people(dice), dice.choice(_COMING)
    busy = other.subject if dice.random() < 0.5 else relative(dice)
    return weave(
        f"when¹ {{who}} {{came}} ,² {{busy}} {was(busy)}³ {{doing}}",
        "当¹ {who} {came} 的 时候¹ ，² {busy} 正在³ {doing}",
        joins="came+doing",
        who=who.subject,
        came=came,
        busy=busy,
        doing=dice.choice(doings).ing,
    )


_COMING = (
    (phrase("came home", "回到 家"), verbs.AT_ANY_HOUR + verbs.INDOORS),
    (phrase("came in", "进来"), verbs.AT_ANY_HOUR + verbs.INDOORS),
    (phrase("arrived", "到达"), verbs.AT_ANY_HOUR + verbs.INDOORS),
    (phrase("got up", "起床"), verbs.AT_ANY_HOUR + verbs.IN_THE_MORNING),
)
