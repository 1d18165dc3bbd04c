"""The nouns and adjectives of the lexicon, and balanced sampling of matching pairs."""

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from random import Random
from typing import Generic, Protocol, TypeVar

from attendo.demo_task.words import Adjective, Noun, Nouns, adjective, make_count_nouns, make_mass_nouns

CLASSES: dict[str, Nouns] = {
    "pets": make_count_nouns("只", "cat 猫, dog 狗, bird 鸟, rabbit 兔子"),
    "farm_animals": make_count_nouns("头", "cow 牛, pig 猪")
    + make_count_nouns("匹", "horse 马")
    + make_count_nouns("只", "duck 鸭子"),
    "wild_animals": make_count_nouns("只", "monkey 猴子, tiger 老虎, panda 熊猫, mouse/mice 老鼠")
    + make_count_nouns("头", "elephant 大象, lion 狮子")
    + make_count_nouns("条", "snake 蛇"),
    "fishes": make_count_nouns("条", "fish/fish 鱼"),
    "fruits": make_count_nouns("个", "apple 苹果, orange 橙子, pear 梨, peach 桃子, watermelon 西瓜")
    + make_count_nouns("根", "banana 香蕉"),
    "vegetables": make_count_nouns("个", "tomato 西红柿, potato 土豆") + make_count_nouns("根", "carrot 胡萝卜"),
    "eggs": make_count_nouns("个", "egg 鸡蛋"),
    "snacks": make_count_nouns("个", "sandwich 三明治, hamburger 汉堡, dumpling 饺子, cake 蛋糕"),
    "foods": make_mass_nouns("rice 米饭, bread 面包, meat 肉, beef 牛肉, tofu 豆腐, chocolate 巧克力, fruit 水果"),
    "drinks": make_mass_nouns("tea 茶, coffee 咖啡, water 水, milk 牛奶, juice 果汁"),
    "beers": make_mass_nouns("beer 啤酒"),
    "soups": make_mass_nouns("soup 汤"),
    "books": make_count_nouns("本", "book 书, novel 小说, magazine 杂志, dictionary 词典"),
    "papers": make_count_nouns("份", "newspaper 报纸") + make_count_nouns("封", "letter 信"),
    "works": make_count_nouns("个", "story 故事") + make_count_nouns("首", "poem 诗, song 歌"),
    "films": make_count_nouns("部", "film 电影"),
    "coats": make_count_nouns("件", "shirt 衬衫, coat 外套, sweater 毛衣, jacket 夹克")
    + make_count_nouns("条", "skirt 裙子"),
    "hats": make_count_nouns("顶", "hat 帽子") + make_count_nouns("条", "scarf/scarves 围巾"),
    "cars": make_count_nouns("辆", "car 车, truck 卡车"),
    "public_cars": make_count_nouns("辆", "bus 公共汽车, taxi 出租车"),
    "cycles": make_count_nouns("辆", "bicycle 自行车, motorcycle 摩托车"),
    "boats": make_count_nouns("条", "boat 船"),
    "devices": make_count_nouns("部", "phone 手机")
    + make_count_nouns("台", "computer 电脑, camera 相机")
    + make_count_nouns("块", "watch 手表"),
    "pens": make_count_nouns("支", "pen 笔, pencil 铅笔"),
    "tools": make_count_nouns("把", "knife/knives 刀, umbrella 雨伞, key 钥匙, guitar 吉他"),
    "sheets": make_count_nouns("张", "map 地图, photo 照片, ticket 票"),
    "cups": make_count_nouns("个", "cup 杯子, bowl 碗, plate 盘子"),
    "bags": make_count_nouns("个", "bag 包, box 盒子"),
    "toys": make_count_nouns("个", "ball 球, toy 玩具"),
    "gifts": make_count_nouns("件", "gift 礼物"),
    "furniture": make_count_nouns("张", "table 桌子, bed 床, sofa 沙发")
    + make_count_nouns("把", "chair 椅子")
    + make_count_nouns("盏", "lamp 灯"),
    "doors": make_count_nouns("扇", "door 门, window 窗户"),
    "flowers": make_count_nouns("朵", "flower 花"),
    "trees": make_count_nouns("棵", "tree 树"),
    "bridges": make_count_nouns("座", "bridge 桥"),
    "cities": make_count_nouns("座", "city 城市"),
    "mountains": make_count_nouns("座", "mountain 山"),
    "houses": make_count_nouns("栋", "house 房子"),
    "ways": make_count_nouns("条", "river 河, road 路"),
    "children": make_count_nouns("个", "child/children 孩子, boy 男孩, girl 女孩"),
    "adults": make_count_nouns("个", "man/men 男人, woman/women 女人"),
    "jobs": make_count_nouns("个", "student 学生, nurse 护士, driver 司机, farmer 农民, chef 厨师, waiter 服务员")
    + make_count_nouns(
        "位", "teacher 老师, doctor 医生, engineer 工程师, lawyer 律师, writer 作家, singer 歌手, painter 画家"
    )
    + make_count_nouns("位", "scientist 科学家, journalist 记者"),
    "friends": make_count_nouns("个", "friend 朋友, neighbour 邻居, classmate 同学, colleague 同事"),
}
_GROUPS = {
    "animals": "pets farm_animals wild_animals",
    "small_animals": "pets duck monkey mouse snake tiger lion pig cow horse fishes",
    "buildings": "bridges cities mountains houses",
    "food_items": "fruits vegetables eggs snacks",
    "clothes": "coats hats",
    "vehicles": "cars cycles boats",
    "reading": "book novel magazine newspaper letter map photo ticket",
    "small_things": "reading dictionary pens phone camera watch umbrella key toys gift hats",
    "made_things": "clothes devices cups bags furniture vehicles",
    "goods": "made_things food_items books newspaper pens tools map ticket toys gifts flowers",
    "sights": "animals flowers trees buildings ways boats",
    "persons": "children adults jobs",
    "few": "vehicles furniture devices buildings ways tools doors horse cow tiger elephant lion clothes novel magazine"
    " dictionary papers works films watermelon sandwich hamburger cake",
    "for_adults": "beers cars public_cars motorcycle boats furniture house",
    "for_one": "clothes cycles horse",
}


def nouns(names: str) -> Nouns:
    """Return the nouns of these names, each the name of a class, of a group of classes or of one noun."""
    return tuple(noun for name in names.split() for noun in _resolve(name))


def _resolve(name: str) -> Nouns:
    if name in _GROUPS:
        return nouns(_GROUPS[name])
    return CLASSES[name] if name in CLASSES else (_NOUNS[name],)


_NOUNS = {noun.name: noun for members in CLASSES.values() for noun in members}


class TakesNouns(Protocol):
    """A verb, an adjective or a spot, with the nouns that it combines with."""

    @property
    def nouns(self) -> Nouns: ...


Word = TypeVar("Word", bound=TakesNouns)


class Matches(Generic[Word]):
    """Samples a word with one of its nouns. Words with few nouns and nouns with few words keep a fair share."""

    def __init__(self, words: Iterable[Word]) -> None:
        self._pairs: list[tuple[Word, Noun]] = [(word, noun) for word in words for noun in word.nouns]
        per_word = Counter(id(word) for word, _ in self._pairs)
        per_noun = Counter(noun.name for _, noun in self._pairs)
        shares = (
            len(per_noun) / per_word[id(word)] + len(per_word) / per_noun[noun.name] for word, noun in self._pairs
        )
        self._cumulative = list(accumulate(shares))

    def sample(self, dice: Random) -> tuple[Word, Noun]:
        return dice.choices(self._pairs, cum_weights=self._cumulative)[0]


COLOURS = (
    adjective("red", "红色", nouns("clothes cars public_cars cycles bags flowers pens cups umbrella")),
    adjective("blue", "蓝色", nouns("clothes cars cycles bags pens cups boats umbrella")),
    adjective("green", "绿色", nouns("clothes cycles bags pens cups boats chair")),
    adjective("yellow", "黄色", nouns("clothes cars public_cars bags flowers cups umbrella")),
    adjective("white", "白色", nouns("clothes cars flowers cups boats pets horse duck house")),
    adjective("black", "黑色", nouns("clothes cars bags pens devices umbrella sofa cat dog horse bird")),
)

DESCRIBING = (
    adjective("big bigger", "大", nouns("small_animals fruits bags trees furniture buildings ball")),
    adjective("small smaller", "小", nouns("small_animals bags trees cups boats table house city bridge")),
    adjective("new newer", "新", nouns("made_things books tools pens map toys song")),
    adjective("old older", "旧", nouns("made_things books guitar toys map photo")),
    adjective("sweet sweeter", "甜", nouns("fruits cake")),
    adjective("good better", "好", nouns("books films works student teacher doctor camera guitar")),
    adjective("beautiful", "漂亮", nouns("flowers clothes house city bridge girl woman bird horse watch gift")),
    adjective("interesting", "有趣", nouns("book novel magazine newspaper films story")),
    adjective("clean cleaner", "干净", nouns("coats cups public_cars")),
    adjective("fresh fresher", "新鲜", nouns("fruits vegetables eggs")),
    adjective("delicious", "好吃", nouns("fruits snacks")),
    adjective("cute cuter", "可爱", nouns("pets children monkey panda elephant duck pig toy")),
    adjective("smart smarter", "聪明", nouns("children student scientist lawyer engineer dog monkey elephant")),
    adjective(
        "young younger", "年轻", nouns("adults nurse driver teacher doctor engineer lawyer writer singer journalist")
    ),
    adjective(
        "friendly friendlier", "友好", nouns("adults driver nurse waiter farmer chef teacher neighbour colleague")
    ),
    adjective("famous", "有名", nouns("writer singer painter scientist lawyer chef novel films poem song")),
    adjective("comfortable", "舒服", nouns("bed sofa chair coat sweater shirt")),
    adjective("important", "重要", nouns("book letter photo map dictionary")),
)

# Before a noun these would need 很 or be unusual, so they only follow "is".
PREDICATE_ONLY = (
    adjective("long longer", "长", nouns("skirt scarf ways")),
    adjective("boring", "无聊", nouns("book novel magazine newspaper films story")),
    adjective("expensive", "贵", nouns("made_things ticket guitar gift")),
    adjective("cheap cheaper", "便宜", nouns("made_things food_items tools pens ticket")),
    adjective("heavy heavier", "重", nouns("bags table bed sofa watermelon computer dictionary camera")),
    adjective("light lighter", "轻", nouns("bags phone computer camera umbrella bicycle")),
    adjective("fast faster", "快", nouns("vehicles public_cars horse")),
    adjective("slow slower", "慢", nouns("vehicles public_cars")),
    adjective("tall taller", "高", nouns("persons trees mountain")),
    adjective("dirty dirtier", "脏", nouns("coats cups furniture doors cars public_cars")),
    adjective("fat fatter", "胖", nouns("pets pig panda duck")),
    adjective("busy busier", "忙", nouns("jobs")),
)

PREDICATES = DESCRIBING + PREDICATE_ONLY
QUALITIES, COLOURED = Matches(PREDICATES), Matches(COLOURS)
_COMPARED = "big small new old long sweet cheap expensive heavy fast tall cute smart young interesting beautiful"
COMPARED = Matches(adjective for adjective in PREDICATES if adjective.name in _COMPARED.split())


def group_by_noun(adjectives: Iterable[Adjective]) -> dict[str, list[Adjective]]:
    """Return the adjectives that fit each noun, by noun name."""
    found: dict[str, list[Adjective]] = {}
    for each in adjectives:
        for noun in each.nouns:
            found.setdefault(noun.name, []).append(each)
    return found


ATTRIBUTES_BY_NOUN = group_by_noun(COLOURS + DESCRIBING)
# "new", "old" and "dirty" are uninformative for things bought yesterday.
REMARKS_BY_NOUN = group_by_noun(adjective for adjective in PREDICATES if adjective.name not in ("new", "old", "dirty"))

FEELINGS = (
    adjective("tired", "累"),
    adjective("hungry hungrier", "饿"),
    adjective("thirsty thirstier", "渴"),
    adjective("busy busier", "忙"),
    adjective("happy happier", "高兴"),
    adjective("sad sadder", "难过"),
    adjective("angry angrier", "生气"),
    adjective("nervous", "紧张"),
)

PERSONAL = (
    adjective("tall taller", "高"),
    adjective("smart smarter", "聪明"),
    adjective("friendly friendlier", "友好"),
    adjective("busy busier", "忙"),
    adjective("tired", "累"),
)
