"""The verbs with their objects, grouped by sentence pattern."""

from attendo.demo_task.nouns import Matches, nouns
from attendo.demo_task.phrase import Phrase, phrase, weave
from attendo.demo_task.words import Verb, verb

EAT, BUY = verb("eat ate eaten", "吃", nouns("food_items")), verb("buy bought", "买", nouns("goods"))
_DOING = (
    EAT,
    BUY,
    verb("sell sold", "卖", nouns("vehicles devices furniture books bags")),
    verb("read read", "看", nouns("book novel magazine newspaper letter")),
    verb("write wrote written", "写", nouns("works letter")),
    verb("watch", "看", nouns("films")),
    verb("wash", "洗", nouns("clothes cups fruits vegetables car truck bag")),
    verb("draw drew drawn", "画", nouns("sights")),
    verb("use", "用", nouns("phone computer camera pens knife dictionary cup bag map")),
    verb("repair", "修", nouns("vehicles devices furniture doors guitar toy")),
    verb("make made", "做", nouns("snacks table chair toy")),
    verb("drive drove driven", "开", nouns("cars public_cars")),
    verb("ride rode ridden", "骑", nouns("cycles horse")),
    verb("plant", "种", nouns("trees")),
)

SEE = verb("see saw seen", "看见", nouns("animals flowers trees bridge mountain house river boats cars public_cars"))
# Verbs without a progressive form.
_HAPPENING = (
    SEE,
    verb("find found", "找到", nouns("small_things pets")),
    verb("lose lost", "丢", nouns("key phone watch umbrella ticket hats camera letter bag pens")),
    verb("borrow", "借", nouns("books cycles pens umbrella camera knife guitar")),
    verb("open", "打开", nouns("doors bags letter")),
    verb("close", "关上", nouns("doors box")),
    verb("break broke broken", "打破", nouns("cups window")),
    verb("wear wore worn", "穿", nouns("shirt coat sweater jacket")),
    verb("wear wore worn", "戴", nouns("hats")),
    verb("receive", "收到", nouns("letter gift photo flower")),
)
DOING = Matches(_DOING)
COUNTED = Matches(verb for verb in (*_DOING, SEE) if verb.name not in ("use", "drive", "ride"))
DONE = Matches(_DOING + _HAPPENING)
_GOING_ON = (*_DOING, verb("look-for", "找", nouns("small_things pets")))
GOING_ON = Matches(_GOING_ON)
IN_WHAT_QUESTIONS = Matches(verb for verb in _GOING_ON if verb.name not in ("drive", "ride"))
# Verbs with one object at a time, and verbs whose object does not exist before.
ONE_AT_A_TIME, CREATING = ("use", "drive", "ride", "wear"), ("write", "make")
REQUESTED = Matches(
    verb for verb in _DOING + _HAPPENING if verb.name in ("open", "close", "wash", "use", "eat", "read")
)
NOTED = Matches(verb for verb in _DOING + _HAPPENING if verb.name in ("buy", "borrow", "read", "watch", "see", "find"))

# Objects of tastes and habits are generic: cats, rice.
LIKE = verb(
    "like",
    "喜欢",
    nouns("animals food_items foods drinks book novel magazine films story poem flowers hats toy cycles mountain city"),
)
TASTES = Matches((
    LIKE,
    verb("love", "爱", nouns("pets horse panda flower chocolate fruit coffee tea book novel poem")),
    verb("hate", "讨厌", nouns("mouse snake meat tofu vegetables coffee beer milk")),
))  # fmt: skip
_HABITS = (
    verb("eat ate eaten", "吃", nouns("food_items foods fishes")),
    verb("drink drank drunk", "喝", nouns("drinks soups")),
    verb("buy bought", "买", nouns("book novel magazine clothes flowers foods food_items drinks toy")),
    verb("read read", "看", nouns("book novel magazine newspaper")),
    verb("write wrote written", "写", nouns("works novel letter")),
    verb("watch", "看", nouns("films")),
    verb("draw drew drawn", "画", nouns("animals flowers trees mountain house")),
)
HABITS = Matches(_HABITS)
TRIED = Matches((
    verb("eat ate eaten", "吃", nouns("sandwich hamburger dumpling peach carrot tofu beef chocolate fishes")),
    verb("drink drank drunk", "喝", nouns("tea coffee milk juice")),
))  # fmt: skip
TASTES_AND_HABITS = Matches((LIKE, *_HABITS))
WISHES = Matches((
    verb("like", "喜欢", nouns("clothes vehicles books films works furniture flowers toys bags pets devices guitar")),
    verb("want", "想要", nouns("goods")),
    verb("need", "需要", nouns("books devices pens tools map ticket bags cups bicycle car coat")),
))  # fmt: skip
_CHOICES = nouns("books shirt coat sweater cars cycles table bed sofa bags cups toys")
CHOOSING = Matches((verb("like", "喜欢", _CHOICES), verb("want", "想要", _CHOICES), verb("need", "需要", _CHOICES)))

TOWARDS_PEOPLE = (
    verb("love", "爱"),
    verb("like", "喜欢"),
    verb("know knew known", "认识"),
    verb("miss", "想念"),
    verb("trust", "相信"),
    verb("need", "需要"),
    verb("understand understood", "懂"),
    verb("respect", "尊重"),
)
MEETING = (
    verb("help", "帮助"),
    verb("see saw seen", "看见"),
    verb("meet met", "遇见"),
    verb("invite", "邀请"),
    verb("thank", "感谢"),
    verb("visit", "看望"),
)
LEARNING = (
    verb("love", "爱"),
    verb("like", "喜欢"),
    verb("study", "学习"),
    verb("teach taught", "教"),
    verb("understand understood", "懂"),
)
FIELDS = tuple(
    phrase(english, chinese)
    for english, chinese in (
        ("natural language processing", "自然 语言 处理"), ("NLP", "NLP"), ("speech processing", "语音 处理"),
        ("image processing", "图像 处理"), ("natural science", "自然 科学"), ("computer science", "计算机 科学"),
        ("computer vision", "计算机 视觉"), ("machine translation", "机器 翻译"), ("machine learning", "机器 学习"),
        ("natural language generation", "自然 语言 生成"), ("history", "历史"), ("mathematics", "数学"),
        ("physics", "物理"), ("music", "音乐"),
    )
)  # fmt: skip
GIVING = Matches((
    verb("give gave given", "给", nouns("goods photo letter")),
    verb("lend lent", "借 给", nouns("books cycles pens umbrella camera guitar knife car coat")),
    verb("sell sold", "卖 给", nouns("vehicles devices furniture guitar books")),
    verb("send sent", "寄 给", nouns("letter books gift photo map ticket clothes")),
))  # fmt: skip
_EVERYBODY, _ANIMALS, _PERSONS = nouns("animals persons"), nouns("animals"), nouns("persons")
MOVES = Matches((
    verb("sit sat", "坐下", nouns("cat dog rabbit monkey panda tiger lion persons")),
    verb("wake-up woke-up", "醒", _EVERYBODY),
    verb("fall-asleep fell-asleep", "睡着", _EVERYBODY),
    verb("run-away ran-away", "逃走", _ANIMALS),
    verb("arrive", "到", _PERSONS),
    verb("leave left", "离开", _PERSONS),
))  # fmt: skip
DRINK = _HABITS[1]
LIVE, GO, WANT = verb("live", "住"), verb("go went gone", "去"), verb("want", "想")


class Activity:
    """A verb with a fixed object, such as playing football. Never with 了."""

    def __init__(self, doing: Verb, rest: str = "", chinese: str = "") -> None:
        self.verb = doing
        self.rest = phrase(rest.removeprefix("the "), chinese) if rest else None
        self.article = "the " if rest.startswith("the ") else ""
        self.base, self.third, self.ing = (self._add_rest(form) for form in (doing.base, doing.third, doing.ing))

    def present(self, subject: Phrase) -> Phrase:
        return self.third if subject.agreement == "he" else self.base

    def _add_rest(self, form: Phrase) -> Phrase:
        if self.rest is None:
            return form
        return weave(f"{{verb}} {self.article}{{rest}}", "{verb} {rest}", head="rest", verb=form, rest=self.rest)


SKILLS = (
    Activity(verb("swim swam swum", "游泳")),
    Activity(verb("dance", "跳舞")),
    Activity(verb("cook", "做饭")),
    Activity(verb("sing sang sung", "唱歌")),
    Activity(verb("play", "踢"), "football", "足球"),
    Activity(verb("play", "打"), "basketball", "篮球"),
    Activity(verb("play", "打"), "tennis", "网球"),
    Activity(verb("play", "下"), "chess", "棋"),
    Activity(verb("play", "弹"), "the piano", "钢琴"),
    Activity(verb("play", "弹"), "the guitar", "吉他"),
    Activity(verb("speak spoke spoken", "说"), "Chinese", "中文"),
    Activity(verb("speak spoke spoken", "说"), "English", "英语"),
)
DUTIES = (
    Activity(verb("work", "工作")),
    Activity(verb("study", "学习")),
    Activity(verb("rest", "休息")),
    Activity(verb("sleep slept", "睡觉")),
    Activity(verb("exercise", "锻炼")),
    Activity(verb("do did done", "做"), "housework", "家务"),
)
PASTIMES = (
    Activity(verb("watch", "看"), "television", "电视"),
    Activity(verb("listen-to", "听"), "music", "音乐"),
    Activity(verb("have had", "吃"), "breakfast", "早饭"),
    Activity(verb("have had", "吃"), "lunch", "午饭"),
    Activity(verb("have had", "吃"), "dinner", "晚饭"),
    Activity(verb("drink drank drunk", "喝"), "tea", "茶"),
    Activity(verb("drink drank drunk", "喝"), "coffee", "咖啡"),
    Activity(verb("read read", "看"), "books", "书"),
    Activity(verb("chat", "聊天")),
    Activity(verb("walk", "散步")),
)
ACTIVITIES = SKILLS[:10] + DUTIES + PASTIMES


def activities(names: str) -> tuple[Activity, ...]:
    """Return activities by the name of their object, or of their verb without an object."""
    by_name = {activity.base.head: activity for activity in SKILLS + DUTIES + PASTIMES}
    return tuple(by_name[name] for name in names.split())


_SOCIABLE = activities("swim dance cook sing football basketball tennis chess piano guitar work study exercise")
_SOCIABLE += activities("television music tea coffee books walk")
REPEATED = _SOCIABLE + activities("housework")
SHARED = _SOCIABLE + activities("breakfast lunch dinner chat")
IN_WHERE_QUESTIONS = activities("work study exercise swim football tennis lunch dinner walk")
INDOORS = activities("dance cook sing chess piano guitar rest sleep exercise lunch dinner chat")
AT_ANY_HOUR = activities("work study housework television music tea coffee books")
IN_THE_MORNING = activities("cook sleep exercise breakfast")
