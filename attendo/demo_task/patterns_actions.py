"""Sentence patterns for actions: one function per pattern, an example as docstring, a template per language."""

from random import Random

from attendo.demo_task import lexicon
from attendo.demo_task.lexicon import COMBINATIONS, CONTAINERS, NAMES, NUMBERS, PAST_TIMES, PHRASES, PRONOUNS, VERBS
from attendo.demo_task.noun_phrases import a, any_number, any_thing, definite, one_thing, plain_definite, the
from attendo.demo_task.people import JOBS, relative, someone, someone_known, someone_with, two_people
from attendo.demo_task.phrase import Parts, Phrase, pattern, phrase
from attendo.demo_task.words import Noun, Verb


@pattern("learning", "{who} {verb} {what}", "{who} {verb} {what}", "verb+what")
def learning(dice: Random) -> Parts:
    """I love natural language processing. 我 爱 自然 语言 处理"""
    who, what = someone_known(dice), dice.choice(PHRASES["fields"])
    return {"who": who, "verb": dice.choice(VERBS["learning"]).present(who), "what": what}


@pattern("feeling for people", "{who} {verb} {whom}", "{who} {verb} {whom}", "who+verb+whom")
def feeling_for_people(dice: Random) -> Parts:
    """I love you. 我 爱 你"""
    one, other = two_people(dice)
    verb = dice.choice(VERBS["towards_people"]).present(one.subject)
    return {"who": one.subject, "verb": verb, "whom": other.object}


@pattern("taste", "{who} {verb} {what}", "{who} {verb} {what}", "verb+what")
def taste(dice: Random) -> Parts:
    """She likes cats. 她 喜欢 猫"""
    who, (verb, noun) = someone(dice), lexicon.TASTES.sample(dice)
    return {"who": who, "verb": verb.present(who), "what": noun.many}


@pattern("negation", "{who} do:who not¹ {verb} {what}", "{who} 不¹ {verb} {what}", "verb+what")
def negation(dice: Random) -> Parts:
    """He does not eat meat. 他 不 吃 肉"""
    who, (verb, noun) = someone(dice), lexicon.TASTES_AND_HABITS.sample(dice)
    return {"who": who, "verb": verb.base, "what": noun.many}


@pattern("past", "{who} {verb} {what}", "{who} {verb} {what}", "verb+what")
def past(dice: Random) -> Parts:
    """The girl bought three apples. 这个 女孩 买 了 三 个 苹果"""
    verb, noun = lexicon.DONE.sample(dice)
    return {"who": someone_with(noun, dice), "verb": verb.past, "what": _thing(verb, noun, dice)}


def _thing(verb: Verb, noun: Noun, dice: Random) -> Phrase:
    """Return a plausible object: one at a time for verbs like wear, indefinite for write and make, else any number."""
    if verb.name in lexicon.CREATING:
        return a(noun) if dice.random() < 0.5 else any_number(noun, dice)
    return one_thing(noun, dice) if verb.name in lexicon.ONE_AT_A_TIME else any_thing(noun, dice)


@pattern("past with time", "{who} {verb} {what} {when}", "{who} {when} {verb} {what}", "verb+what")
def past_with_time(dice: Random) -> Parts:
    """I bought a book yesterday. 我 昨天 买 了 一 本 书"""
    verb, noun = lexicon.DONE.sample(dice)
    who, what = someone_with(noun, dice), _thing(verb, noun, dice)
    return {"who": who, "verb": verb.past, "what": what, "when": dice.choice(PAST_TIMES)}


@pattern("past with time", "{who} {verb} {whom} {when}", "{who} {when} {verb} {whom}", "verb+whom")
def meeting(dice: Random) -> Parts:
    """The teacher helped me yesterday. 这位 老师 昨天 帮助 了 我"""
    who = the(dice.choice(JOBS)) if dice.random() < 0.5 else dice.choice(NAMES)
    verb = dice.choice(VERBS["meeting"]).past
    whom = dice.choice(PRONOUNS).object if dice.random() < 0.4 else relative(dice)
    return {"who": who, "verb": verb, "whom": whom, "when": dice.choice(PAST_TIMES)}


@pattern("past negation", "{who} did¹ not¹ {verb} {what}", "{who} 没¹ {verb} {what}", "verb+what")
def past_negation(dice: Random) -> Parts:
    """She did not buy the book. 她 没 买 这本 书"""
    verb, noun = lexicon.DONE.sample(dice)
    return {"who": someone_with(noun, dice), "verb": verb.base, "what": definite(noun, dice)}


@pattern("future", "{who} will¹ {verb} {what} {when}", "{who} {when} 会¹ {verb} {what}", "verb+what")
def future(dice: Random) -> Parts:
    """She will buy a car tomorrow. 她 明天 会 买 一 辆 车"""
    verb, noun = lexicon.DOING.sample(dice)
    who, what = someone_with(noun, dice), _thing(verb, noun, dice)
    return {"who": who, "verb": verb.base, "what": what, "when": dice.choice(lexicon.FUTURE_TIMES)}


@pattern("frequency", "{who} {often} {verb} {what}", "{who} {often} {verb} {what}", "verb+what often+verb")
def frequency(dice: Random) -> Parts:
    """She often reads novels. 她 经常 看 小说"""
    who, (verb, noun) = someone(dice), lexicon.HABITS.sample(dice)
    often = dice.choice(PHRASES["frequencies"])
    return {"who": who, "often": often, "verb": verb.present(who), "what": noun.many}


@pattern("frequency", "{who} {verb} {when}", "{who} {when} {verb}", "verb+when")
def daily(dice: Random) -> Parts:
    """He plays tennis every day. 他 每天 打 网球"""
    who, when = someone(dice), dice.choice(PHRASES["habitual_times"])
    return {"who": who, "verb": dice.choice(lexicon.activities("repeated")).present(who), "when": when}


@pattern("moving", "{who} {verb}", "{who} {verb}", "who+verb")
def moving(dice: Random) -> Parts:
    """The cat sat. 这只 猫 坐下 了"""
    verb, noun = lexicon.MOVES.sample(dice)
    return {"who": definite(noun, dice), "verb": verb.past}


@pattern("progressive", "{who} be:who¹ {verb} {what}", "{who} 正在¹ {verb} {what}", "verb+what")
def progressive(dice: Random) -> Parts:
    """She is reading the book. 她 正在 看 这本 书"""
    verb, noun = lexicon.GOING_ON.sample(dice)
    who = someone_with(noun, dice)
    what = (plain_definite if verb.name in lexicon.CREATING else definite)(noun, dice)
    return {"who": who, "verb": verb.ing, "what": what}


@pattern("progressive", "{who} be:who¹ {doing}", "{who} 正在¹ {doing}", "who+doing")
def progressive_activity(dice: Random) -> Parts:
    """She is listening to music. 她 正在 听 音乐"""
    return {"who": someone(dice), "doing": dice.choice(lexicon.ACTIVITIES).ing}


@pattern("wish", "{who} {want} to {verb} {what}", "{who} {want} {verb} {what}", "verb+what")
def wish(dice: Random) -> Parts:
    """I want to buy a car. 我 想 买 一 辆 车"""
    verb, noun = lexicon.DOING.sample(dice)
    who = someone_with(noun, dice)
    return {"who": who, "want": lexicon.WANT.present(who), "verb": verb.base, "what": _thing(verb, noun, dice)}


@pattern("wish", "{who} do:who not¹ {want} to {swim}", "{who} 不¹ {want} {swim}", "who+swim")
def unwillingness(dice: Random) -> Parts:
    """Tom does not want to swim. 汤姆 不 想 游泳"""
    return {"who": someone(dice), "want": lexicon.WANT.base, "swim": dice.choice(lexicon.ACTIVITIES).base}


@pattern("ability", "{who} {can} {skill}", "{who} {can} {skill}", "who+skill")
def ability(dice: Random) -> Parts:
    """He can play chess. 他 会 下 棋"""
    can = dice.choice(PHRASES["abilities"])
    return {"who": someone(dice), "can": can, "skill": dice.choice(lexicon.SKILLS).base}


@pattern("ability", "{who} {should} {work}", "{who} {should} {work}", "who+work")
def duty(dice: Random) -> Parts:
    """You should rest. 你 应该 休息"""
    should = dice.choice(PHRASES["duties"])
    return {"who": someone(dice), "should": should, "work": dice.choice(lexicon.DUTIES).base}


@pattern("giving", "{who} {verb} {whom} {what}", "{who} {verb} {whom} {what}", "verb+what")
def giving(dice: Random) -> Parts:
    """He gave me a book. 他 给 了 我 一 本 书"""
    (one, other), (verb, noun) = two_people(dice), lexicon.GIVING.sample(dice)
    who = one.subject if dice.random() < 0.5 else dice.choice(NAMES)
    return {"who": who, "verb": verb.past, "whom": other.object, "what": any_thing(noun, dice)}


@pattern("serving", "{who} {verb} {count} {cup} of {what}", "{who} {verb} {count} {cup} {what}", "cup+what")
def serving(dice: Random) -> Parts:
    """I drank two cups of tea. 我 喝 了 两 杯 茶"""
    verb, container, contents = dice.choice(_SERVINGS)
    single = dice.random() < 0.4
    count = phrase("a", "一") if single else dice.choice(NUMBERS[:4])
    what = dice.choice(contents)
    cup, who = container.one if single else container.many, someone_with(what, dice)
    return {"who": who, "verb": verb.past, "count": count, "cup": cup, "what": what.one}


_SERVINGS = tuple(
    ({"drink": lexicon.DRINK, "eat": lexicon.EAT}[verb], CONTAINERS[container], lexicon.nouns(contents))
    for verb, container, contents in COMBINATIONS["servings"]
)


@pattern("experience", "{who} have:who¹ {never} {verb} {what}", "{who} {never} {verb} 过¹ {what}", "verb+what")
def experience(dice: Random) -> Parts:
    """She has never eaten tofu. 她 从来 没 吃 过 豆腐"""
    who, (verb, noun) = someone(dice), lexicon.EXPERIENCES.sample(dice)
    return {"who": who, "never": dice.choice(PHRASES["ever"]), "verb": verb.participle, "what": noun.many}


@pattern("request", "{please} {verb} {what}", "{please} {verb} {what}", "verb+what")
def request(dice: Random) -> Parts:
    """Please open the window. 请 打开 这扇 窗户"""
    verb, noun = lexicon.REQUESTED.sample(dice)
    return {"please": dice.choice(PHRASES["requests"]), "verb": verb.base, "what": plain_definite(noun, dice)}
