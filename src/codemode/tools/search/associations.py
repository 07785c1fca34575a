"""Words that lead to others, and not back: what people say, and what tools for that have in them. Data."""

from __future__ import annotations

from collections.abc import Iterator

_ASSOCIATIONS = """
answer respond: reply response
backup: copy export save
restore recover: revert undo rollback
wipe purge trash bin unwanted toss: delete remove clear
forget: delete memory
unzip unpack: extract decompress
paste: insert write clipboard
full space heavy biggest largest smallest bytes kilobytes megabytes gigabytes: size storage
much: price cost amount
many: count number total
far: distance
big tall wide: size dimensions
long: duration length
old: age date
often: frequency history
called named wrongly: name rename
entitled titled: title name
inside within contain consist: contents list
noon midnight clock oclock morning evening afternoon: time
timezone: time zone
today tomorrow yesterday tonight weekday weekend: date time day
deadline due overdue: date task
permitted permission authorized authorised: allowed permission access
jot scribble memo: note write add
known learned learnt: memory note knowledge
remind: reminder
changed altered modified: change diff update
differ differs: diff difference compare
stash shelve: stash save
proposal contribution: pull request
sign approval endorse: approve review
reviewer feedback opinion: review comment
teammate colleague coworker boss: user member person
maintainer author owner: user
passing failing green red: status check build
broken breaks broke malfunction defect crash crashed: bug issue error
outage incident down unavailable offline: status incident alert error
own: fork copy
codebase: repository code
snippet programming script: code
popup banner: dialog
phone mobile tablet smartphone: device screen
caret cursor: input type click
typed typing keystroke: type input key
tick untick uncheck: checkbox check
spinner loading: wait
look looks appearance: screenshot image
backwards: back
customers orders: query database
ping dm: message send
inbox mailbox letter: email message
forward: send
text texting sms: message
dial ring: call phone
invitation attend guest: invite event
reschedule postpone: update event schedule move
availability slot free busy: availability calendar schedule
wiki article: page document
draft compose: create write
paragraph sentence: text document
rain raining snow snowing sunny cloudy wind windy humidity precipitation storm: weather forecast
cold warm hot degrees celsius fahrenheit: temperature weather
fly flying airplane airport: flight
room cabin hostel motel lodging: hotel accommodation
sights sightseeing landmark attraction: place travel
eat dinner lunch breakfast hungry cuisine: restaurant food
walk walking drive driving cycling bike commute journey: route directions travel
bus subway metro tram ferry: transit route station
vacation holiday getaway tour itinerary abroad: travel trip
rent renting lease tenant: rental house property
cheap cheapest affordable bargain expensive: price cost discount
invest investing investment portfolio nasdaq dividend: stock finance market
earnings revenue profit: financial income
bitcoin ethereum dogecoin blockchain coin token nft: crypto price
dollar euro yen pound: currency exchange
pay paying paid: payment
bill billed: invoice payment
owe balance debt: balance account
spend spent spending: expense cost
bank banking: account payment
shop shopping: product order cart
gift present: product gift
sale deal coupon voucher: discount price
shipping shipped parcel: delivery shipment order
basket: cart
goods inventory: product inventory item
laptop camera headphones shoes dress: product
thriller comedy cinema actor: movie
artist album singer band lyrics playlist: music song
podcast episode: audio
youtube footage: video
watch watching: video movie
listen listening: music audio
subtitle caption: transcript
sketch draw paint illustration: drawing image canvas
selfie portrait jpeg png: image photo
loud louder quieter mute: volume audio
instance ec2: instance server
replica: scale
reboot: restart
rollout: deploy release
cpu ram load utilization usage: metric usage
firing fired triggered: alarm alert active
production: deploy status
wrong failed fails failure: error
spider: crawl
subpages: sitemap crawl
google googling bing: search web
headline journalist press: news
happened happening: event history news
encyclopedia: wikipedia
meaning definition define: dictionary
thorough depth detailed: research
citation references: research source
background overview: summary information
prospect: lead contact customer
firm business enterprise corporation: company
complaint: ticket issue
sum plus minus times multiply multiplied divide divided subtract: calculate math add
average mean median: statistics calculate
dice lottery: random
percent percentage: calculate ratio
french spanish german italian portuguese japanese chinese korean english arabic russian: translate language
proofread spelling spell: grammar check text
rephrase paraphrase reword: rewrite text
shorten shorter: summarize short
employee staff: user employee
symptom medicine illness disease: health medical
lawyer attorney contract court: law legal
learn learning lesson tutor curriculum class: course education
hiring vacancy career internship salary: job
lamp bulb brightness: light
heating cooling thermostat: temperature
zodiac astrology: horoscope
flat condo bedroom: property house apartment
mockup prototype wireframe: design
colour: color
theme dark: color style media
logo icon: image icon
competitor ranking: seo keyword
address: location url
situated located whereabouts: location
nearest closest vicinity: nearby
latitude longitude: coordinates location geocode
enable disable activate deactivate: set update
hide reveal appear appears: visible show
assign assigned responsible: assignee update
backlog sprint kanban: issue task board
subtask: task
done finished completed: close complete
pending queue: status list
progress ongoing: status
logout: sign account
figures: statistics data
trending: trend popular
newest fresh: recent latest
past earlier previously: history
every: list
hyperlink: url link
attachment: file attach
handwritten scanned: ocr
deck slideshow: presentation slide
series: metric time
threshold: alarm limit
several two three four five six seven eight nine ten dozen bunch couple batch simultaneously parallel: multiple
assert ensure expect confirm: verify
shown displayed displays appears: visible
button checkbox icon: element click
menu tooltip: hover element
collect gather harvest: crawl extract get
printing printed printer: print pdf media
know knows known: knowledge memory search
entire complete full: all
structure hierarchy nested: tree
hidden hide: visible
approve approval reject: review
folder folders: directory
internet online: web search
documentation manual docs: document search
lately yesterday: recent latest history log
author wrote written: commit user
changed changes edited modified: diff change
unusual strange odd suspicious: anomaly analyze
faster slow speed quick: performance optimize index
fails failing failed red: failure status error
"""


def associations() -> Iterator[tuple[str, list[str]]]:
    """Yield words, and those that each leads to."""
    for line in _ASSOCIATIONS.strip().split("\n"):
        words, _, others = line.partition(": ")
        for word in words.split():
            yield word, [*others.split()]
