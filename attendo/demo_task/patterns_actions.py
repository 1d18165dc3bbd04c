"""Sentence patterns for actions: one function per pattern, an example as docstring, a template per language."""

from random import Random

from attendo.demo_task import verbs
from attendo.demo_task.noun_phrases import NUMBERS, a, any_number, any_thing, definite, one_thing, plain_definite, the
from attendo.demo_task.nouns import nouns
from attendo.demo_task.people import (
    NAMES,
    PRONOUNS,
    be,
    do,
    have,
    relative,
    someone,
    someone_known,
    someone_with,
    two_people,
)
from attendo.demo_task.phrase import Phrase, weave
from attendo.demo_task.places import FREQUENCIES, FUTURE_TIMES, HABITUAL_TIMES, PAST_TIMES
from attendo.demo_task.words import Noun, Verb, make_count_nouns


def learning(dice: Random) -> Phrase:
    """I love natural language processing. 我 爱 自然 语言 处理"""
    who, what = someone_known(dice), dice.choice(verbs.FIELDS)
    verb = dice.choice(verbs.LEARNING).present(who)
    return weave("{who} {verb} {what}", "{who} {verb} {what}", joins="verb+what", who=who, verb=verb, what=what)


def feeling_for_people(dice: Random) -> Phrase:
    """I love you. 我 爱 你"""
    one, other = two_people(dice)
    who, whom = one.subject, other.object
    verb = dice.choice(verbs.TOWARDS_PEOPLE).present(who)
    return weave("{who} {verb} {whom}", "{who} {verb} {whom}", joins="who+verb+whom", who=who, verb=verb, whom=whom)


def taste(dice: Random) -> Phrase:
    """She likes cats. 她 喜欢 猫"""
    who, (taste, noun) = someone(dice), verbs.TASTES.sample(dice)
    verb = taste.present(who)
    return weave("{who} {verb} {what}", "{who} {verb} {what}", joins="verb+what", who=who, verb=verb, what=noun.many)


def negation(dice: Random) -> Phrase:
    """He does not eat meat. 他 不 吃 肉"""
    who, (habit, noun) = someone(dice), verbs.TASTES_AND_HABITS.sample(dice)
    return weave(
        f"{{who}} {do(who)} not¹ {{verb}} {{what}}",
        "{who} 不¹ {verb} {what}",
        joins="verb+what",
        who=who,
        verb=habit.base,
        what=noun.many,
    )


def past(dice: Random) -> Phrase:
    """The girl bought three apples. 这个 女孩 买 了 三 个 苹果"""
    verb, noun = verbs.DONE.sample(dice)
    who, what = someone_with(noun, dice), _thing(verb, noun, dice)
    return weave("{who} {verb} {what}", "{who} {verb} {what}", joins="verb+what", who=who, verb=verb.past, what=what)


def _thing(verb: Verb, noun: Noun, dice: Random) -> Phrase:
    """Return a plausible object: one at a time for verbs like wear, indefinite for write and make, else any number."""
    if verb.name in verbs.CREATING:
        return a(noun) if dice.random() < 0.5 else any_number(noun, dice)
    return one_thing(noun, dice) if verb.name in verbs.ONE_AT_A_TIME else any_thing(noun, dice)


def past_with_time(dice: Random) -> Phrase:
    """I bought a book yesterday. 我 昨天 买 了 一 本 书"""
    verb, noun = verbs.DONE.sample(dice)
    return weave(
        "{who} {verb} {what} {when}",
        "{who} {when} {verb} {what}",
        joins="verb+what",
        who=someone_with(noun, dice),
        verb=verb.past,
        what=_thing(verb, noun, dice),
        when=dice.choice(PAST_TIMES),
    )


def past_negation(dice: Random) -> Phrase:
    """She did not buy the book. 她 没 买 这本 书"""
    verb, noun = verbs.DONE.sample(dice)
    return weave(
        "{who} did¹ not¹ {verb} {what}",
        "{who} 没¹ {verb} {what}",
        joins="verb+what",
        who=someone_with(noun, dice),
        verb=verb.base,
        what=definite(noun, dice),
    )


def meeting(dice: Random) -> Phrase:
    """The teacher helped me yesterday. 这位 老师 昨天 帮助 了 我"""
    return weave(
        "{who} {verb} {whom} {when}",
        "{who} {when} {verb} {whom}",
        joins="verb+whom",
        who=the(dice.choice(_JOBS)) if dice.random() < 0.5 else dice.choice(NAMES),
        verb=dice.choice(verbs.MEETING).past,
        whom=dice.choice(PRONOUNS).object if dice.random() < 0.4 else relative(dice),
        when=dice.choice(PAST_TIMES),
    )


_JOBS = nouns("jobs")


def future(dice: Random) -> Phrase:
    """She will buy a car tomorrow. 她 明天 会 买 一 辆 车"""
    verb, noun = verbs.DOING.sample(dice)
    return weave(
        "{who} will¹ {verb} {what} {when}",
        "{who} {when} 会¹ {verb} {what}",
        joins="verb+what",
        who=someone_with(noun, dice),
        verb=verb.base,
        what=_thing(verb, noun, dice),
        when=dice.choice(FUTURE_TIMES),
    )


def daily(dice: Random) -> Phrase:
    """He plays tennis every day. 他 每天 打 网球"""
    who, when = someone(dice), dice.choice(HABITUAL_TIMES)
    verb = dice.choice(verbs.REPEATED).present(who)
    return weave("{who} {verb} {when}", "{who} {when} {verb}", joins="verb+when", who=who, verb=verb, when=when)


def frequency(dice: Random) -> Phrase:
    """She often reads novels. 她 经常 看 小说"""
    who, (habit, noun) = someone(dice), verbs.HABITS.sample(dice)
    return weave(
        "{who} {often} {verb} {what}",
        "{who} {often} {verb} {what}",
        joins="verb+what often+verb",
        who=who,
        often=dice.choice(FREQUENCIES),
        verb=habit.present(who),
        what=noun.many,
    )


def moving(dice: Random) -> Phrase:
    """The cat sat. 这只 猫 坐下 了"""
    verb, noun = verbs.MOVES.sample(dice)
    return weave("{who} {verb}", "{who} {verb}", joins="who+verb", who=definite(noun, dice), verb=verb.past)


def progressive(dice: Random) -> Phrase:
    """She is reading the book. 她 正在 看 这本 书"""
    verb, noun = verbs.GOING_ON.sample(dice)
    who = someone_with(noun, dice)
    return weave(
        f"{{who}} {be(who)}¹ {{verb}} {{what}}",
        "{who} 正在¹ {verb} {what}",
        joins="verb+what",
        who=who,
        verb=verb.ing,
        what=(plain_definite if verb.name in verbs.CREATING else definite)(noun, dice),
    )


def progressive_activity(dice: Random) -> Phrase:
    """She is listening to music. 她 正在 听 音乐"""
    who, doing = someone(dice), dice.choice(verbs.ACTIVITIES).ing
    return weave(f"{{who}} {be(who)}¹ {{doing}}", "{who} 正在¹ {doing}", joins="who+doing", who=who, doing=doing)


def wish(dice: Random) -> Phrase:
    """I want to buy a car. 我 想 买 一 辆 车"""
    verb, noun = verbs.DOING.sample(dice)
    who = someone_with(noun, dice)
    return weave(
        "{who} {want} to {verb} {what}",
        "{who} {want} {verb} {what}",
        joins="verb+what",
        who=who,
        want=verbs.WANT.present(who),
        verb=verb.base,
        what=_thing(verb, noun, dice),
    )


def unwillingness(dice: Random) -> Phrase:
    """Tom does not want to swim. 汤姆 不 想 游泳"""
    who = someone(dice)
    return weave(
        f"{{who}} {do(who)} not¹ {{want}} to {{swim}}",
        "{who} 不¹ {want} {swim}",
        joins="who+swim",
        who=who,
        want=verbs.WANT.base,
        swim=dice.choice(verbs.ACTIVITIES).base,
    )


def ability(dice: Random) -> Phrase:
    """He can play chess. 他 会 下 棋"""
    can, hui = dice.choice((("can¹", "会¹"), ("cannot¹", "不¹ 会¹")))
    who, skill = someone(dice), dice.choice(verbs.SKILLS).base
    return weave(f"{{who}} {can} {{skill}}", f"{{who}} {hui} {{skill}}", joins="who+skill", who=who, skill=skill)


def duty(dice: Random) -> Phrase:
    """You should rest. 你 应该 休息"""
    should, yinggai = dice.choice((("should¹", "应该¹"), ("must¹", "必须¹")))
    who, work = someone(dice), dice.choice(verbs.DUTIES).base
    return weave(f"{{who}} {should} {{work}}", f"{{who}} {yinggai} {{work}}", joins="who+work", who=who, work=work)


def giving(dice: Random) -> Phrase:
    """He gave me a book. 他 给 了 我 一 本 书"""
    (one, other), (verb, noun) = two_people(dice), verbs.GIVING.sample(dice)
    return weave(
        "{who} {verb} {whom} {what}",
        "{who} {verb} {whom} {what}",
        joins="verb+what",
        who=one.subject if dice.random() < 0.5 else dice.choice(NAMES),
        verb=verb.past,
        whom=other.object,
        what=any_thing(noun, dice),
    )


def serving(dice: Random) -> Phrase:
    """I drank two cups of tea. 我 喝 了 两 杯 茶"""
    verb, container, contents = dice.choice(_SERVINGS)
    single = dice.random() < 0.4
    english, chinese = ("a", "一") if single else dice.choice(NUMBERS[:4])
    what = dice.choice(contents)
    return weave(
        f"{{who}} {{verb}} {english}¹ {{container}} of {{what}}",
        f"{{who}} {{verb}} {chinese}¹ {{container}} {{what}}",
        joins="container+what",
        who=someone_with(what, dice),
        verb=verb.past,
        container=container.one if single else container.many,
        what=what.one,
    )


_CUP, _GLASS, _BOTTLE, _BOWL, _PIECE = make_count_nouns("", "cup 杯, glass 杯, bottle 瓶, bowl 碗, piece 块")
_SERVINGS = (
    (verbs.DRINK, _CUP, nouns("tea coffee")),
    (verbs.DRINK, _GLASS, nouns("water milk juice beer")),
    (verbs.DRINK, _BOTTLE, nouns("water milk juice beer")),
    (verbs.DRINK, _BOWL, nouns("soup")),
    (verbs.EAT, _BOWL, nouns("rice")),
    (verbs.EAT, _PIECE, nouns("bread chocolate tofu meat cake beef")),
)


def experience(dice: Random) -> Phrase:
    """She has never eaten tofu. 她 从来 没 吃 过 豆腐"""
    who, (verb, noun) = someone(dice), verbs.TRIED.sample(dice)
    never, conglai_mei = dice.choice((("", ""), ("never²", "从来² 没²")))
    return weave(
        f"{{who}} {have(who)}¹ {never} {{verb}} {{what}}",
        f"{{who}} {conglai_mei} {{verb}} 过¹ {{what}}",
        joins="verb+what",
        who=who,
        verb=verb.participle,
        what=noun.many,
    )


def request(dice: Random) -> Phrase:
    """Please open the window. 请 打开 这扇 窗户"""
    verb, noun = verbs.REQUESTED.sample(dice)
    please, qing = dice.choice((("please¹", "请¹"), ("please¹ do² not²", "请¹ 不要²")))
    what = plain_definite(noun, dice)
    return weave(
        f"{please} {{verb}} {{what}}", f"{qing} {{verb}} {{what}}", joins="verb+what", verb=verb.base, what=what
    )
