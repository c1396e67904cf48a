"""Labelled questions and the facts that answer them, for `memory_recall.py`."""

from __future__ import annotations

from typing import NamedTuple

FACTS = {
    # one person, in English
    "coffee": "Drinks coffee black, without sugar, and never after three in the afternoon.",
    "tea": "Likes green tea in the evening; peppermint tea when ill.",
    "allergy": "Is allergic to peanuts and carries an adrenaline pen.",
    "vegetarian": "Has been a vegetarian since 2019, but eats eggs and cheese.",
    "sister": "Her sister Marta lives in Porto and works as a nurse.",
    "brother": "Her brother Luis studies chemistry in Leeds.",
    "dog": "Has a dog named Biscuit, a brown terrier who is afraid of thunder.",
    "cat": "The neighbour's cat is called Pixel and visits on Sundays.",
    "birthday": "Her birthday is on the 14th of May; she does not like surprise parties.",
    "anniversary": "The wedding anniversary is on the 2nd of September.",
    "flight_seat": "Prefers an aisle seat on flights and a window seat on trains.",
    "hotel": "Books hotels with a gym and late checkout, never above the tenth floor.",
    "timezone": "Lives in Lisbon and works in Western European Time.",
    "office": "Goes to the office on Tuesdays and Thursdays; other days are remote.",
    "meetings": "Wants no meetings before ten in the morning.",
    "summary": "Prefers summaries as three bullet points, not as prose.",
    "language": "Reads Spanish and Portuguese well, speaks a little German.",
    "doctor": "Dr. Almeida is her dentist; the clinic is next to the cathedral.",
    "bike": "Rides an electric bicycle to work and stores it in the basement.",
    "glasses": "Needs large print because of weak eyesight.",
    # one project, in English
    "deploy": "Releases are deployed on Wednesdays after the smoke tests pass.",
    "rollback": "To undo a release, run make rollback with the tag of the last good build.",
    "database": "The production database is Postgres 16; the test suite uses SQLite.",
    "backup": "Backups are taken nightly at 02:00 and kept for 35 days.",
    "codeowner": "Changes to the billing module need a review by Priya.",
    "frontend": "Tomas maintains the web frontend, written in Svelte.",
    "lint": "The linter allows lines of up to 100 characters.",
    "python": "The service runs on Python 3.12 and must not import pandas.",
    "timeout": "Requests to the payment provider time out after eight seconds.",
    "retry": "Failed webhooks are sent again five times with growing pauses.",
    "invoice": "Invoices are numbered per country, starting with the ISO code.",
    "currency": "All prices are stored in cents, as integers.",
    "staging": "The staging server is rebuilt from scratch every Monday.",
    "oncall": "The on-call rotation changes on Friday at noon.",
    "customer_acme": "The customer Acme pays by bank transfer and gets net 60 terms.",
    "customer_bolt": "The customer Bolt pays by card and is charged monthly.",
    "vendor": "Parcels are shipped by the carrier NordPost; tracking numbers begin with NP.",
    "license": "New dependencies must have a permissive licence; GPL is not accepted.",
    # Chinese
    "zh_food": "她不吃辣，最喜欢的菜是清蒸鲈鱼。",
    "zh_friend": "他最好的朋友王磊在深圳做硬件工程师。",
    "zh_wife": "他的妻子叫陈静，是一名小学老师。",
    "zh_city": "去年从北京搬到了杭州，住在西湖附近。",
    "zh_train": "出差一般坐高铁，不喜欢坐飞机。",
    "zh_tea": "早上喝龙井茶，晚上不喝咖啡。",
    "zh_report": "周报要在每个星期五下午五点之前交给李经理。",
    "zh_sport": "每周三晚上和同事打羽毛球。",
    "zh_baby": "女儿今年六岁，九月份上小学。",
    "zh_health": "对青霉素过敏，看病时要提醒医生。",
    "zh_book": "正在读《三体》第二部，喜欢科幻小说。",
    "zh_bank": "工资卡是招商银行的，房贷每月十五号扣款。",
    "zh_style": "回答问题时希望先给结论，再解释原因。",
    "zh_server": "测试服务器放在上海机房，生产服务器在张家口。",
    "zh_budget": "项目预算上限是八十万元，超过需要总监批准。",
    "zh_meeting": "部门例会改到了每周一上午十点。",
    # mixed
    "mix_db": "订单服务用的是 MySQL 8，缓存用 Redis，超时时间设为 30 秒。",
    "mix_laptop": "他的笔记本是 ThinkPad X1，系统装的是 Ubuntu 24.04。",
    "mix_repo": "代码放在 GitLab 上，merge request 需要两个人 review。",
    "mix_english": "客户 Johnson 只说 English，开会时要准备英文 PPT。",
    "mix_api": "支付 API 的 sandbox 环境每晚重置，不要保存测试数据。",
    "mix_branch": "发布分支叫 release-2.x，hotfix 从 main 拉出来。",
    # Japanese
    "ja_food": "彼は魚介類のアレルギーがあるので、寿司は食べません。",
    "ja_mother": "母は京都で小さな花屋をやっています。",
    "ja_trip": "来月は出張で札幌に三日間滞在します。",
    "ja_reply": "メールの返信は敬語でお願いします。",
    "ja_hobby": "週末はよく山登りに行きます。",
    "ja_train": "通勤には中央線を使っています。",
    # Korean
    "ko_food": "매운 음식을 못 먹고 된장찌개를 좋아합니다.",
    "ko_home": "지난달에 서울에서 부산으로 이사했습니다.",
    "ko_son": "아들은 고등학교 2학년이고 수학을 좋아합니다.",
    "ko_meeting": "화요일 오후 세 시에 팀 회의가 있습니다.",
    "ko_report": "보고서는 한국어로 작성해 주세요.",
}


class Case(NamedTuple):
    """A question, its language, and the fact that answers it."""

    language: str
    query: str
    fact: str


CASES = [
    Case("English", *each)
    for each in (
        ("how does she take her coffee", "coffee"),
        ("what should I serve to drink in the evening: tea?", "tea"),
        ("any food allergies", "allergy"),
        ("can I order a steak, or is she vegetarian", "vegetarian"),
        ("where does her sister live", "sister"),
        ("what is the brother studying", "brother"),
        ("name of the dog", "dog"),
        ("is the terrier scared of storms and thunder", "dog"),
        ("whose cat is Pixel", "cat"),
        ("when is her birthday", "birthday"),
        ("date of the wedding", "anniversary"),
        ("which seat to book on the flight", "flight_seat"),
        ("book a hotel room", "hotel"),
        ("which time zone is she in", "timezone"),
        ("days in the office", "office"),
        ("earliest hour for a meeting", "meetings"),
        ("how should a summary be formatted", "summary"),
        ("does she speak German", "language"),
        ("which dentist", "doctor"),
        ("where is the bicycle stored", "bike"),
        ("font size for printing large documents", "glasses"),
        ("on which day do we deploy a release", "deploy"),
        ("how do I undo a bad release", "rollback"),
        ("which Postgres version is in production", "database"),
        ("how long do we keep a backup", "backup"),
        ("who must review billing changes", "codeowner"),
        ("who maintains the frontend", "frontend"),
        ("maximum length of a line for the linter", "lint"),
        ("may I import pandas", "python"),
        ("payment provider request timeout", "timeout"),
        ("what happens to a failed webhook", "retry"),
        ("numbering of invoices", "invoice"),
        ("how is a price stored", "currency"),
        ("when is staging rebuilt", "staging"),
        ("when does on-call rotate", "oncall"),
        ("payment terms of Acme", "customer_acme"),
        ("how is Bolt charged", "customer_bolt"),
        ("tracking number of a parcel", "vendor"),
        ("can I add a GPL dependency", "license"),
        # said in other words than the fact
        ("does she eat meat", "vegetarian"),
        ("will she need somebody to walk her pet", "dog"),
        ("how does she commute", "bike"),
        ("can we schedule a call at 9", "meetings"),
        ("who approves changes of the billing code", "codeowner"),
        ("which night job saves the data, and when does the backup run", "backup"),
        ("money amounts: floats or integers", "currency"),
    )
]
CASES += [
    Case("Chinese", *each)
    for each in (
        ("她喜欢吃什么菜", "zh_food"),
        ("能不能点辣的菜", "zh_food"),
        ("王磊是做什么的", "zh_friend"),
        ("他太太陈静的职业", "zh_wife"),
        ("现在住在哪个城市，杭州还是北京", "zh_city"),
        ("出差订机票还是高铁票", "zh_train"),
        ("早上喝什么茶", "zh_tea"),
        ("周报什么时候交", "zh_report"),
        ("星期三晚上有什么运动", "zh_sport"),
        ("女儿几岁了", "zh_baby"),
        ("有没有药物过敏", "zh_health"),
        ("最近在读什么小说", "zh_book"),
        ("房贷哪天扣款", "zh_bank"),
        ("回答的格式有什么要求，先说结论吗", "zh_style"),
        ("生产服务器在哪里", "zh_server"),
        ("预算最多多少", "zh_budget"),
        ("例会几点开", "zh_meeting"),
        ("他爱人是干什么工作的", "zh_wife"),
        ("孩子上学了吗，小学几年级", "zh_baby"),
        ("部门的周会时间", "zh_meeting"),
        ("看病要注意什么", "zh_health"),
        ("超过多少钱要总监同意", "zh_budget"),
        ("打球", "zh_sport"),
    )
]
CASES += [
    Case("mixed", *each)
    for each in (
        ("订单服务用什么 database，MySQL 吗", "mix_db"),
        ("Redis 缓存的 timeout", "mix_db"),
        ("他用什么 laptop，ThinkPad 吗", "mix_laptop"),
        ("merge request 要几个人看", "mix_repo"),
        ("给 Johnson 开会要准备什么", "mix_english"),
        ("sandbox 的数据会保留吗", "mix_api"),
        ("hotfix 从哪个 branch 拉", "mix_branch"),
        ("Ubuntu 版本", "mix_laptop"),
        ("ＭｙＳＱＬ　８", "mix_db"),
    )
]
CASES += [
    Case("Japanese", *each)
    for each in (
        ("寿司を注文してもいいですか", "ja_food"),
        ("お母さんの仕事は花屋ですか", "ja_mother"),
        ("札幌の出張は何日間", "ja_trip"),
        ("メールの書き方", "ja_reply"),
        ("週末の趣味", "ja_hobby"),
        ("ﾒｰﾙの返信", "ja_reply"),
        ("通勤の電車", "ja_train"),
        ("休みの日は何をしますか、山ですか", "ja_hobby"),
        ("魚を食べられますか", "ja_food"),
    )
]
CASES += [
    Case("Korean", *each)
    for each in (
        ("매운 음식을 주문해도 되나요", "ko_food"),
        ("부산에 사나요 서울에 사나요", "ko_home"),
        ("아들이 좋아하는 과목은 수학인가요", "ko_son"),
        ("팀 회의는 언제", "ko_meeting"),
        ("보고서 언어", "ko_report"),
        ("어디로 이사했나요", "ko_home"),
        ("회의 요일과 시간", "ko_meeting"),
    )
]

LATER_FACTS = {
    # one person, in English
    "shoes": "Her shoe size is 39, and she avoids leather.",
    "parking": "Parks the car in the garage on Mill Street, level three.",
    "gym": "Goes swimming every Saturday morning at the municipal pool.",
    "medicine": "Takes blood pressure tablets twice a day, with breakfast and with dinner.",
    "landlord": "The landlord, Mr. Hoffmann, wants the rent on the third of each month.",
    "school": "The children go to Riverside primary school; lessons end at half past three.",
    "music": "Plays the cello in an amateur orchestra that rehearses on Mondays.",
    "insurance": "Her health insurance is with Medica, and the policy number ends with 4471.",
    "newspaper": "Reads the Guardian and cancelled the subscription to the Times.",
    "emergency": "In an emergency call her husband Paul before anybody else.",
    "phone": "Never answers unknown callers; send a text message first.",
    "garden": "Grows tomatoes and herbs on the balcony and waters them at dusk.",
    # one project, in English
    "branching": "Feature branches are squashed when they are merged into main.",
    "secrets": "Credentials are stored in Vault and rotated every ninety days.",
    "logging": "Logs are written as JSON and shipped to the Loki cluster.",
    "ci": "The build pipeline runs on self-hosted machines in Frankfurt.",
    "flaky": "The checkout test is flaky: run it again once before investigating.",
    "cache": "Cached product pages expire after fifteen minutes.",
    "migration": "Schema migrations have to be backwards compatible for one release.",
    "alerts": "Alerts at night go to the pager only if customers are affected.",
    "refund": "Refunds above two hundred euros need the approval of a manager.",
    "supplier": "The supplier Kessler delivers late in August because of factory holidays.",
    "naming": "Microservices are named after rivers.",
    "docs": "Architecture decisions are written down in the folder docs/adr.",
    # Chinese
    "zh_car": "他开一辆白色的电动汽车，车牌尾号是 8。",
    "zh_mother": "母亲住在成都，每年春节回去看她。",
    "zh_glasses": "近视五百度，开车必须戴眼镜。",
    "zh_cat": "家里养了两只猫，对狗毛过敏。",
    "zh_exam": "下个月要参加注册会计师考试。",
    "zh_guitar": "业余时间弹吉他，偶尔在酒吧演出。",
    "zh_contract": "合同必须由法务部审核以后才能盖章。",
    "zh_expense": "报销单要附上发票原件，每月二十五号截止。",
    "zh_release": "新版本一般在周四晚上发布，周五不上线。",
    "zh_customer": "华东区最大的客户是宏远贸易公司，联系人是赵敏。",
    "zh_password": "数据库密码每三个月更换一次，由运维负责。",
    "zh_vacation": "年假还剩六天，打算国庆节去云南旅游。",
    # mixed, Japanese, Korean
    "mix_meeting": "和 Berlin 团队的 standup 在每天下午四点，用 Zoom。",
    "mix_test": "单元测试用 pytest，覆盖率不能低于 85%。",
    "ja_pet": "猫を二匹飼っていて、名前はソラとウミです。",
    "ja_deadline": "見積書の締め切りは毎月二十日です。",
    "ja_doctor": "高血圧の薬を毎朝飲んでいます。",
    "ko_car": "파란색 전기차를 타고 회사 지하 주차장에 세웁니다.",
    "ko_allergy": "땅콩 알레르기가 있어서 과자를 조심해야 합니다.",
    "ko_release": "새 버전은 목요일 저녁에 배포합니다.",
}
"""Facts that came later, with the questions below."""

LATER_CASES = [
    Case("English", *each)
    for each in (
        ("what size of shoes does she wear", "shoes"),
        ("where is the car parked", "parking"),
        ("on which day does she swim", "gym"),
        ("which pills does she have to take", "medicine"),
        ("tablets for the pressure of the blood", "medicine"),
        ("when is the rent due", "landlord"),
        ("what time do the kids finish school", "school"),
        ("does she play an instrument", "music"),
        ("when are the orchestra rehearsals", "music"),
        ("which company insures her", "insurance"),
        ("number of the insurance policy", "insurance"),
        ("is she still subscribed to the Times", "newspaper"),
        ("who should be called in emergencies", "emergency"),
        ("how to reach her by phone, can I call", "phone"),
        ("what is growing on her balcony", "garden"),
        ("should I squash before merging a branch", "branching"),
        ("how often do we rotate a credential", "secrets"),
        ("in what format is the service logging", "logging"),
        ("where does the pipeline build", "ci"),
        ("a checkout test failed, what now", "flaky"),
        ("when does a cached page expire", "cache"),
        ("rules for migrating the schema", "migration"),
        ("is somebody paged by an alert during the night", "alerts"),
        ("who approves refunding a customer 300 euros", "refund"),
        ("why was the delivery of Kessler delayed", "supplier"),
        ("how do we name a new microservice", "naming"),
        ("where do I document a decision on architecture", "docs"),
        ("doctor's prescriptions", "medicine"),
    )
]
LATER_CASES += [
    Case("Chinese", *each)
    for each in (
        ("他开什么颜色的车", "zh_car"),
        ("车牌号码最后一位", "zh_car"),
        ("过年去哪里看妈妈", "zh_mother"),
        ("他妈妈住在哪个城市", "zh_mother"),
        ("视力怎么样，近视多少度", "zh_glasses"),
        ("养了几只宠物猫", "zh_cat"),
        ("能不能带狗去他家", "zh_cat"),
        ("最近在准备什么考试", "zh_exam"),
        ("会弹什么乐器", "zh_guitar"),
        ("盖章之前谁要看合同", "zh_contract"),
        ("报销什么时候截止", "zh_expense"),
        ("发票要交原件吗", "zh_expense"),
        ("星期几发布新版本", "zh_release"),
        ("宏远公司的联系人是谁", "zh_customer"),
        ("密码多久换一次", "zh_password"),
        ("还有几天年假", "zh_vacation"),
        ("国庆假期的旅行计划", "zh_vacation"),
    )
]
LATER_CASES += [
    Case("mixed", "Berlin 的 standup 几点", "mix_meeting"),
    Case("mixed", "pytest coverage 覆盖率要求多少", "mix_test"),
    Case("mixed", "用什么框架写 unit test，单元测试", "mix_test"),
    Case("Japanese", "猫の名前は何ですか", "ja_pet"),
    Case("Japanese", "ペットを飼っていますか", "ja_pet"),
    Case("Japanese", "見積もりはいつまでに出しますか", "ja_deadline"),
    Case("Japanese", "どんな薬を飲みますか", "ja_doctor"),
    Case("Korean", "차는 무슨 색인가요", "ko_car"),
    Case("Korean", "주차는 어디에 하나요", "ko_car"),
    Case("Korean", "땅콩을 먹어도 되나요", "ko_allergy"),
    Case("Korean", "배포는 무슨 요일에 하나요", "ko_release"),
]

HELD_CASES = [
    Case("English", *each)
    for each in (
        ("is there anything she is allergic to", "allergy"),
        ("who did she marry, and when was it", "anniversary"),
        ("is she studying, or is it the brother who studies", "brother"),
        ("how were the invoices numbered", "invoice"),
        ("who is responsible for reviewing the code of billing", "codeowner"),
        ("what is the maintainer of the frontend called", "frontend"),
        ("which carrier do we use for shipping", "vendor"),
        ("on which machines do builds run", "ci"),
        ("do we need approvals for a refund", "refund"),
        ("documentation of architectural decisions", "docs"),
        ("is the schema compatible after migrating", "migration"),
        ("how do I store a credential", "secrets"),
        ("who is her landlord", "landlord"),
        ("when do the lessons of the children end", "school"),
        ("rotation of the people on call", "oncall"),
        ("is it fine to ring her when she does not know my number", "phone"),
        ("preferred airline seats", "flight_seat"),
        ("expiry of product pages", "cache"),
    )
]
HELD_CASES += [
    Case("Chinese", *each)
    for each in (
        ("宠物猫有几只", "zh_cat"),
        ("注册会计师考试是什么时候", "zh_exam"),
        ("可以在星期五发布吗", "zh_release"),
        ("什么人负责更换数据库密码", "zh_password"),
        ("为什么他开车要戴眼镜", "zh_glasses"),
        ("他在哪里弹吉他", "zh_guitar"),
        ("请问盖章需要什么手续", "zh_contract"),
        ("他女儿多大", "zh_baby"),
        ("工资发到哪家银行", "zh_bank"),
        ("应该给谁交周报", "zh_report"),
    )
]
HELD_CASES += [
    Case("mixed", "GitLab 的 merge request 谁来 review", "mix_repo"),
    Case("mixed", "Zoom 会议是几点", "mix_meeting"),
    Case("Japanese", "お寿司は食べられますか", "ja_food"),
    Case("Japanese", "締め切りはいつですか", "ja_deadline"),
    Case("Japanese", "猫は何匹いますか", "ja_pet"),
    Case("Japanese", "高血圧ですか", "ja_doctor"),
    Case("Korean", "아들은 몇 학년인가요", "ko_son"),
    Case("Korean", "보고서는 무슨 언어로 쓰나요", "ko_report"),
    Case("Korean", "과자에 땅콩이 있나요", "ko_allergy"),
]
