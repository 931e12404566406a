"""Pairs of claims, by what they are to each other, for the tests of the rules.

One pair in a line, with a bar between. None of them is taken from a data set. Pairs under ``OTHERS`` look alike and
say different things: none of them is the other's duplicate, and none may supersede the other.
"""

from __future__ import annotations

SAME = """
    I live in Berlin. | The user lives in Berlin
    I live in Berlin | I live in berlin!
    My favourite colour is blue | The user's favorite color is blue.
    The capital of Peru is Lima | Lima is the capital of Peru
    The meeting is at 5 pm | The meeting is at 17:00
    The invoice was sent on 8 May 2026 | The invoice was sent on 2026-05-08
    The invoice was sent on May 8th, 2026 | The invoice was sent on 2026/05/08.
    The cache holds 1,000 entries | The cache holds 1000 entries
    The job takes 2 hours | The job takes 120 min
    The parcel weighs 1.5 kg | The parcel weighs 1500 grams
    “Moby Dick” is on the shelf | "Moby Dick" is on the shelf
    Don’t call after 9 pm | Don't call after 21:00
    The release is really late | The release is late
    Ｕｂｕｎｔｕ runs on the host | Ubuntu runs on the host
    I use Ubuntu系统 | I use 乌班图
    用户使用乌班图。 | 用户使用Ubuntu系统
    我住在北京 | 我住在北京。
    用户喜欢喝茶 | 我喜欢喝茶
    法国的首都是巴黎 | 巴黎是法国的首都
    会议定于2026年5月8日 | 会议定于2026-05-08
    أحب القهوة كل صباح | أحب القهوة كل صباح.
    אני גר בתל אביב | אני גר בתל אביב.
    Anna sends 👍🏽 for yes | Anna sends 👍🏽 for yes.
    ユーザーは紅茶が好きです。 | ユーザーは紅茶が好きです
    사용자는 녹차를 좋아한다 | 사용자는 녹차를 좋아한다.
    Anna works at Siemens | Anna works for Siemens since 2019
    Anna is currently employed by Siemens | Anna is employed by Siemens
    I prefer tea over coffee | The user prefers tea to coffee
"""

CONTRARY = """
    I live in Berlin | I live in Lisbon
    I live in Berlin | I moved to Lisbon
    The user lives in the city of Berlin | The user lives in the city of Lisbon
    My favourite colour is blue | My favourite colour is green
    Anna's favourite dish is ramen | Anna's favourite dish is pizza
    The capital of Peru is Lima | The capital of Peru is Cusco
    Lima is the capital of Peru | The capital of Peru is Cusco
    Anna is married to Ben | Anna is married to Carl
    Anna was born in the city of Graz | Anna was born in the city of Linz
    Anna plays the position of goalkeeper | Anna plays the position of striker
    Anna is a citizen of Austria | Anna is a citizen of Chile
    The author of Hollow Hills is Ann Lee | The author of Hollow Hills is Max Ober
    The company that built the bridge is Strabag | The company that built the bridge is Hochtief
    The university where Anna was educated is TU Graz | The university where Anna was educated is TU Wien
    Hollow Hills was written in the language of Welsh | Hollow Hills was written in the language of Irish
    Anna works for Siemens | Anna works for Bosch
    I prefer tabs for indentation | I prefer spaces for indentation
    I prefer dark mode | I prefer light mode
    I prefer tea over coffee | I prefer coffee over tea
    The timeout of the gateway is 30 seconds | The timeout of the gateway is 60 seconds
    Anna is 34 years old | Anna is 35 years old
    Anna has 2 cats | Anna has 3 cats
    My phone number is 555 1234 | My phone number is 555 9876
    The default branch of the repository is main | The default branch of the repository is trunk
    The meeting is on Monday | The meeting is on Tuesday
    The standup is at 9:00 | The standup is at 9:30
    The service is enabled | The service is disabled
    The door is open | The door is closed
    The user likes coriander | The user does not like coriander
    The user likes coriander | The user dislikes coriander
    The user drinks beer | The user never drinks beer
    Anna lives in Graz | Anna no longer lives in Graz
    The build is green | The build is not green
    我住在北京 | 我住在上海
    我住在北京 | 我搬到了上海
    用户最喜欢的颜色是蓝色 | 用户最喜欢的颜色是绿色
    法国的首都是巴黎 | 法国的首都是里昂
    小明在谷歌工作 | 小明在百度工作
    用户喜欢香菜 | 用户不喜欢香菜
    小明出生于成都 | 小明出生于重庆
"""

OTHERS = {
    "another subject": """
        The capital of Peru is Lima | The capital of Chile is Santiago
        The capital of Peru is Lima | The capital of Lima is Miraflores
        I live in Berlin | Anna lives in Lisbon
        Anna lives in Graz | Anna Maria lives in Linz
        Anna's favourite dish is ramen | Ben's favourite dish is pizza
        Anna's mother lives in Graz | Anna's father lives in Linz
        Anna's mother is Clara | Anna's grandmother is Dora
        The author of Hollow Hills is Ann Lee | The author of Hollow Hills II is Max Ober
        The author of Hills is Ann Lee | The author of Green Hills is Max Ober
        New York is located in the continent of North America | York is located in the continent of Europe
        The timeout of the gateway is 30 seconds | The timeout of the database is 60 seconds
        The timeout of gateway 1 is 30 seconds | The timeout of gateway 2 is 60 seconds
        The port of staging is 8080 | The port of production is 9090
        The owner of repository api is Anna | The owner of repository web is Ben
        Python uses indentation | PyPy uses a tracing compiler
        Java was created by Sun | JavaScript was created by Netscape
        C++ was created by Bjarne | C was created by Dennis
        C# was developed by Microsoft | C was developed by Bell Labs
        The host of node-1 is alpha | The host of node-11 is beta
        Order 4711 was shipped to Graz | Order 4712 was shipped to Linz
        Ticket #12 is assigned to Anna | Ticket #13 is assigned to Ben
        Anna Berg is married to Ben Berg | Anna Burg is married to Carl Burg
        Austria is located in the continent of Europe | Australia is located in the continent of Oceania
        Georgia is located in the continent of Europe | Georgina is located in the continent of Asia
        The head of sales is Anna | The head of support is Ben
        The head of the sales team is Anna | The head of the support team is Ben
        The king of Norway is Harald | The king of Sweden is Carl Gustaf
        My wife was born in the city of Graz | My sister was born in the city of Linz
        My office is in Graz | My flat is in Linz
        The door of room 101 is open | The door of room 102 is closed
        Team Red plays the position of defence | Team Blue plays the position of attack
        The Sunday meeting is at 9:00 | The Monday meeting is at 10:00
    """,
    "another property": """
        The capital of Peru is Lima | The currency of Peru is Sol
        The capital of Peru is Lima | The largest city of Peru is Callao
        The chief executive officer of Acme is Anna | The chief technology officer of Acme is Ben
        The CEO of Acme is Anna | The CFO of Acme is Ben
        The head of state of Japan is Naruhito | The head of government of Japan is Kishida
        The author of Hollow Hills is Ann Lee | The illustrator of Hollow Hills is Max Ober
        The author of Hollow Hills is Ann Lee | The publisher of Hollow Hills is Max Ober
        Hollow Hills was written by Ann Lee | Hollow Hills was translated by Max Ober
        Hollow Hills was published in Graz | Hollow Hills was published in 1999
        Acme was founded in the city of Graz | Acme was founded by Anna
        Acme was founded in the city of Graz | Acme is located in the city of Linz
        Acme was founded in the city of Graz | Acme was founded in the year of 1999
        Anna was born in the city of Graz | Anna died in the city of Linz
        Anna was born in the city of Graz | Anna was born in the country of Austria
        Anna was born in Graz | Anna was born in 1980
        Anna was born in Graz | Anna was raised in Linz
        Anna lives in Graz | Anna works in Linz
        Anna lives in the city of Graz | Anna lives in the country of Austria
        Anna lives with Ben | Anna lives in Linz
        Anna is married to Ben | Anna is related to Carl
        Anna is employed by Acme | Anna is followed by Bolt
        Anna speaks the language of Welsh | Anna writes in the language of Irish
        Anna plays the position of goalkeeper | Anna plays the role of Hamlet
        My favourite colour is blue | My favourite dish is ramen
        My favourite colour is blue | My least favourite colour is brown
        My first name is Anna | My last name is Berg
        My phone number is 555 1234 | My office phone number is 555 9876
        My work email is a@acme.example | My private email is b@bolt.example
        I prefer tabs for indentation | I prefer vim for editing
        I prefer dark mode | I prefer window seats
        I prefer tea for breakfast | I prefer wine for dinner
        I prefer tea over coffee | I prefer wine over beer
        The timeout of the gateway is 30 seconds | The port of the gateway is 8080
        The read timeout of the gateway is 30 seconds | The write timeout of the gateway is 60 seconds
        The minimum of the pool is 5 | The maximum of the pool is 20
        Anna is 34 years old | Anna is 170 cm tall
        Anna has 2 cats | Anna has 3 dogs
        The meeting is on Monday | The meeting is in Graz
        The meeting is at 9:00 | The meeting is on the 3rd of May
        The start date of the project is 2026-05-01 | The end date of the project is 2026-06-01
        The server is located in the city of Graz | The server is managed by Anna
    """,
    "both are so": """
        Anna likes tea | Anna likes coffee
        Anna loves Bach | Anna loves Mahler
        Anna visited Rome | Anna visited Oslo
        Anna worked for Acme | Anna worked for Bolt
        Anna lived in Graz | Anna lived in Linz
        Anna studied in Graz | Anna studied in Linz
        Anna read Dune | Anna read Emma
        Anna bought a bicycle | Anna bought a kayak
        Anna owns a bicycle | Anna owns a kayak
        Anna has a bicycle | Anna has a kayak
        Anna knows Ben | Anna knows Carl
        Anna is allergic to peanuts | Anna is allergic to penicillin
        Anna is interested in chess | Anna is interested in sailing
        Anna is good at chess | Anna is good at sailing
        Anna is afraid of spiders | Anna is afraid of snakes
        Anna is a member of the choir | Anna is a member of the board
        Anna is a fan of Arsenal | Anna is a fan of the Lakers
        Anna is responsible for billing | Anna is responsible for payroll
        Anna is familiar with Go | Anna is familiar with Rust
        Anna is friends with Ben | Anna is friends with Carl
        Anna's child is Ben | Anna's child is Carl
        Anna's daughter is Dora | Anna's daughter is Emma
        Anna's brother is Ben | Anna's brother is Carl
        Anna's friend is Ben | Anna's friend is Carl
        My hobby is chess | My hobby is sailing
        My dog is Rex | My dog is Bello
        Anna's colleague is Ben | Anna's colleague is Carl
        Anna is kind | Anna is tall
        Anna is a nurse | Anna is a mother
        My car is red | My car is fast
        The soup is hot | The soup is salty
        The capital of Peru is beautiful | The capital of Peru is Lima
        The weather in Graz is rainy | The weather in Graz is cold
        The API supports JSON | The API supports XML
        The service is written in Go | The service is covered by tests
        The sauce contains nuts | The sauce contains milk
        Anna speaks Welsh | Anna speaks Irish
        Anna plays chess | Anna plays tennis
        Anna reads novels | Anna reads comics
        Anna drinks tea | Anna drinks water
        Anna met Ben in Graz | Anna met Carl in Linz
        The team won the cup in 2019 | The team won the cup in 2021
        Anna is also a citizen of Chile | Anna is a citizen of Austria
    """,
    "then and now": """
        Anna was married to Ben | Anna is married to Carl
        The CEO of Acme was Anna | The CEO of Acme is Ben
        The capital of Brazil was Rio | The capital of Brazil is Brasília
        Anna lived in Graz | Anna lives in Linz
        Anna worked for Acme | Anna works for Bolt
        Anna used to live in Graz | Anna lives in Linz
        Anna formerly worked for Acme | Anna works for Bolt
        My favourite colour was blue | My favourite colour is green
        My previous phone number is 555 1234 | My phone number is 555 9876
        The former CEO of Acme is Anna | The CEO of Acme is Ben
        Anna will live in Oslo | Anna lives in Linz
        The next meeting is on Monday | The last meeting was on Tuesday
        The old password policy was strict | The password policy is lax
        Anna was employed by Acme | Anna is employed by Bolt
        Acme was located in the city of Graz | Acme is located in the city of Linz
        Anna had 2 cats | Anna has 3 cats
        Until 2020 the port was 8080 | The port of the gateway is 9090
    """,
    "not stated": """
        Anna does not live in Graz | Anna lives in Linz
        Anna never lived in Graz | Anna lived in Linz
        Anna may live in Oslo | Anna lives in Linz
        Anna might be married to Ben | Anna is married to Carl
        If it rains the venue is Hall A | The venue of the party is Hall B
        Does Anna live in Graz? | Anna lives in Linz
        Is Lima the capital of Peru? | The capital of Peru is Cusco
        Ben says the capital of Peru is Cusco | The capital of Peru is Lima
        Ben believes Anna lives in Graz | Anna lives in Linz
        According to Ben Anna works for Acme | Anna works for Bolt
        Anna wants to live in Oslo | Anna lives in Linz
        Anna plans to move to Oslo | Anna lives in Linz
        Anna would prefer dark mode | Anna prefers light mode
        Perhaps the CEO of Acme is Anna | The CEO of Acme is Ben
        The capital of Peru is not Cusco | The capital of Peru is Lima
        The capital of Peru is probably Cusco | The capital of Peru is Lima
        Anna lives in neither Graz nor Linz | Anna lives in Oslo
        Anna almost moved to Oslo | Anna lives in Linz
        Anna's favourite colour could be green | Anna's favourite colour is blue
        Please set the port of the gateway to 8080 | The port of the gateway is 9090
    """,
    "numbers, dates, units": """
        The library needs Python 3.10 | The library needs Python 3.1
        The fix is in 1.2.3 | The fix is in 1.23
        The invoice is due on 2026-05-08 | The invoice is due on 2026-08-05 unless paid
        The invoice of May was sent on 2026-05-08 | The invoice of June was sent on 2026-06-08
        The tank holds 5 litres | The tank holds 5 gallons
        The road is 5 km long | The road is 5 m wide
        The fee is $5 per month | The fee is $5 per year
        Chapter 5 is short | Chapter 6 is long
        The train leaves at 9:00 on Mondays | The train leaves at 9:30 on Sundays
        Room 12 seats 30 people | Room 21 seats 40 people
        Version 2 was released in 2020 | Version 3 was released in 2021
        Backup runs every 6 hours | Cleanup runs every 12 hours
        The file has 1,000 lines | The file has 1.000 MB
        5² is odd | 52 is even
        The score was 3:2 | The score was 2:3
        The range was 1-5 | The range is 1-50
        Level 10 is locked | Level 1 is unlocked
        Gate B12 closes at 10 am | Gate B21 closes at 10 pm
    """,
    "who does what to whom": """
        Anna manages Ben | Ben manages Anna
        Anna is taller than Ben | Ben is taller than Anna
        Anna owes Ben money | Ben owes Anna money
        The train goes from Graz to Linz | The train goes from Linz to Graz
        Graz beat Linz | Linz beat Graz
        Export data from A to B | Export data from B to A
        Service A depends on service B | Service B depends on service A
        Anna is the manager of Ben | Ben is the manager of Anna
        Anna was hired by Ben | Ben was hired by Anna
        The cat chased the dog | The dog chased the cat
        Translate Welsh to Irish | Translate Irish to Welsh
        Anna introduced Ben to Carl | Anna introduced Carl to Ben
    """,
    "one word makes it": """
        All tests pass | Some tests pass
        Retry three times | Retry four times
        Deploy before the freeze | Deploy after the freeze
        Cook with salt | Cook without salt
        Always ask before deleting | Ask before deleting branches
        Use tabs in Go files | Use spaces in Python files
        Inhale slowly | Exhale slowly
        The patient has hypertension | The patient has hypotension
        The drug is contraindicated | The drug is indicated
        Increase the limit | Decrease the limit
        The user is vegetarian | The user is vegan
        Anna studied at the university | Anna studied the universe
        The policy was changed | The police was changed
        He lives in Berlin | She lives in Rome
        Anna has a dog | Anna has dogs
        Meet at the north gate | Meet at the south gate
        Import the module | Export the module
        The form needs a custom stamp | The form needs a customs stamp
        Anna ordered a red bicycle | Anna ordered a bicycle
        Anna trusts the board | Anna trusts the bored
        Enable caching for images | Enable caching for videos
        Anna takes aspirin daily | Anna takes aspirin weekly
        Anna's flight lands in Oslo at 9:00 | Anna's flight leaves Oslo at 9:00
        The causal model is ready | The casual model is ready
    """,
    "中文": """
        法国的首都是巴黎 | 德国的首都是柏林
        法国的首都是巴黎 | 法国的货币是欧元
        法国的首都是巴黎 | 法国的首都曾经是里昂
        我住在北京 | 我妈妈住在上海
        我住在北京 | 我在上海工作
        我住在北京 | 我出生于上海
        用户喜欢茶 | 用户喜欢咖啡
        用户喜欢茶 | 小明喜欢茶
        小明的妈妈是王芳 | 小明的奶奶是李梅
        小明的朋友是小红 | 小明的朋友是小刚
        小明的爱好是下棋 | 小明的爱好是游泳
        小明会说英语 | 小红会说法语
        用户最喜欢的颜色是蓝色 | 用户最喜欢的水果是苹果
        用户可能住在上海 | 用户住在北京
        用户打算搬到上海 | 用户住在北京
        用户以前住在上海 | 用户住在北京
        他住在上海 | 她住在北京
        会议在三点开始 | 会议在四点结束
        小明比小红高 | 小红比小明高
        服务器有8个核 | 服务器有8块盘
        东京是日本的首都 | 京都是日本的古都
        数据库用的是MySQL | 缓存用的是Redis
        大同的车票已订 | 大理的车票已订
    """,
    "other scripts": """
        أحب القهوة | أحب الشاي
        أحب القهوة | لا أحب القهوة
        אני גר בתל אביב | אני גר בחיפה
        אני אוהב קפה | אני לא אוהב קפה
        ユーザーは紅茶が好きです | ユーザーは珈琲が好きです
        ユーザーは紅茶が好きです | ユーザーは紅茶が好きではありません
        사용자는 녹차를 좋아한다 | 사용자는 커피를 좋아한다
        Анна живёт в Граце | Анна жила в Граце
        Анна любит чай | Анна не любит чай
        Η Άννα μένει στο Γκρατς | Η Άννα μένει στο Λιντς
        ผู้ใช้ชอบชา | ผู้ใช้ชอบกาแฟ
        उपयोगकर्ता को चाय पसंद है | उपयोगकर्ता को चाय पसंद नहीं है
        Anna sends 👍 for yes | Anna sends 👎 for yes
        Anna sends 👍🏽 for yes | Anna sends 👍🏿 for yes
        The flag is 🇩🇪 | The flag is 🇧🇪
        The mood is 🙂 today | The mood is ☹️ today
        🍵 | ☕
        👨‍👩‍👧 | 👨‍👩‍👦
    """,
}


def pairs(table: str) -> list[tuple[str, str]]:
    """Returns the pairs of a table."""
    lines = [line.split(" | ") for line in map(str.strip, table.splitlines()) if line]
    return [(first.strip(), second.strip()) for first, second in lines]
