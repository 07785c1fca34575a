"""Words of about the same meaning, associations, and words that say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

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


_STOP_WORDS = """
a about all am an and any are as at be been but by can could did do does for from had has have how i if in into is
it its just let like may me might my need of on onto or our out please shall should so some than that the their
them then there these they this those to us using want was we were what when where which who whose why will with
would you your
actually again also always anybody anyone anything because being did doing else ever everybody everyone everything
goes going gone got had hand having he help her here him his however im ive kind lets lot maybe mine moment must nice
okay ones other others perhaps probably quite rather really rid said say says seem she since somebody
somehow someone something soon still such sure tell thank thanks thing things though told too try trying up upon
very via wants way ways well went whatever wherever whether while whole without yet s t d ll re ve
able assist assistance curious currently especially exactly gave given gives hello hey hi including interested
needed needs particular particularly possible possibly provide provided provides providing recently regarding specific
specifically various wanted wonder wondering
"""
_FOREIGN_STOP_WORDS = """
una unos unas el los las al por para con que como mi esta este quiero der das den dem des ein eine einen einer
und oder mit von zu zum zur im auf fur ich mir mein ist le la les un une du aux ce cette et ou avec pour sur mon
mes je il lo gli dei della nel uno per di da na nos nas os um uma em com meu minha eu de
и в на с по из для это мне мои я что как все عن في من على هل ما
"""  # noqa: RUF001 - they are Cyrillic
STOP_WORDS = frozenset(_STOP_WORDS.split() + _FOREIGN_STOP_WORDS.split())
"""Words that say nothing of what a tool does. A query of nothing else keeps them."""

GENERAL = frozenset(
    """
    add append build call change check close copy create delete describe do edit execute export fetch find generate get
    give go import insert inspect list load look make manage modify move new open perform print process put query read
    remove rename replace retrieve run save search see select send set show start stop store switch take update upload
    use view write
    """.split()  # noqa: SIM905 - a text is easier to read
)
"""What is done with a thing, and says nothing of the thing."""

_SYNONYMS = """
create add make new insert generate write register build
delete remove erase drop destroy clear discard
get fetch retrieve read show view obtain load
list enumerate show index browse
update edit modify change set replace patch alter revise
search find query lookup look locate discover
send post publish submit deliver notify
run execute invoke evaluate perform trigger
start begin launch open initiate
stop cancel abort end halt terminate
close shut quit dismiss
open navigate visit go
move rename relocate
copy duplicate clone fork
join merge combine
store save write persist remember
export save download
upload attach
enter type input
press hit push
pick select choose
check verify validate inspect
count number total
size large big dimensions
folder directory path
file document
contents content text body
picture image photo screenshot
page website site web
url link address
repository project repo
issue ticket bug problem
comment reply note
message mail email
person user member contact
team group organization
log history record
error failure exception
alarm alert warning
metric measurement statistic
date day time
event meeting appointment calendar
task todo job
table schema columns
database sql
row record entry
key secret password credential
price cost amount
customer client account
order purchase
product item article
payment charge invoice
weather forecast temperature
translate translation language
summarize summary digest
compare diff difference
schedule plan book reserve
fact observation
relation link edge
entity node
dropdown option select combobox
tap click press
scroll wheel
popup dialog alert modal prompt
capture screenshot snapshot
people person user member developer
allow permit permission access
transfer move migrate
photo picture image
sound audio voice recording
film movie video clip
scrape crawl extract fetch
research investigate study
news article headline
internet web online google
buy purchase order
reserve book booking
hotel accommodation stay
flight airline plane
train railway
drive route directions navigation
near nearby around close
rain weather temperature
reminder alarm
stock share quote ticker
currency exchange conversion
song track music audio
recipe dish meal food
disk drive storage
login authenticate signin
register signup subscribe
chat conversation
approve accept confirm
reject deny decline
label tag category
deploy release publish
compile build
pipeline workflow job
container docker
server host machine
domain dns whois
encrypt encode hash
calculate compute math evaluate
convert transform change
sort order rank
spreadsheet sheet excel workbook
chart graph plot diagram
slide presentation powerpoint
word document docx
heading title name
compress zip archive
memory remember recall knowledge
wait pause sleep
undo revert reset rollback
back previous return
size resize dimensions
screen window viewport
field input form
column field attribute
row record entry line
place location venue point
phone mobile device
trend popular hot
paper publication article
directory folder
trip travel journey
distance far length
house apartment property
school university education
doctor hospital health
think reason plan
check status state
commit save
copy duplicate clone fork
previous back
current now present
recent latest last
"""

_SPELLINGS = """
acc=account acct=account addr=address amt=amount api=interface app=application appt=appointment args=argument
attach=attachment attr=attribute auth=authentication avg=average bk=book bkmk=bookmark brk=break btn=button
btns=button cal=calendar calc=calculate cfg=configuration char=character chars=character chg=change chgs=change
chk=check cmd=command cmp=compare cnt=count col=column cols=column conf=configuration config=configuration
conn=connection conv=conversation ctx=context cust=customer cw=cloudwatch db=database del=delete deps=dependency
dept=department desc=description dest=destination dev=developer diff=difference dir=directory dirs=directory
dl=download doc=document docs=document dt=date dup=duplicate dupe=duplicate elem=element elems=element elt=element
env=environment err=error errs=error eval=evaluate evt=event evts=event ex=example exec=execute exp=export
ext=extension fav=favorite fld=field fldr=folder fldrs=folder flds=field fmt=format fn=function fns=function
freq=frequency fs=filesystem func=function fwd=forward gcal=calendar gen=generate gh=github gl=gitlab grp=group
grps=group hist=history hr=hour hw=hardware idx=index img=image imgs=image imp=import impl=implementation
info=information init=initialize iss=issue itm=item jrnl=journal js=javascript k8s=kubernetes kb=knowledge
lang=language lat=latitude lib=library ln=link lng=longitude loc=location ls=list lst=list lvl=level max=maximum
mem=memory mgmt=management mgr=manager min=minimum mk=make mkdir=create+directory mod=modify mr=merge+request
mrs=merge+request msg=message msgs=message mtg=meeting mtgs=meeting mths=month mv=move nav=navigate nbr=number
net=network notif=notification notifs=notification ns=namespace num=number obj=object op=operation ops=operation
opt=option opts=option ord=order org=organization param=parameter params=parameter passwd=password perm=permission
perms=permission pg=page pgs=page pic=picture pics=picture pkg=package pkgs=package pos=position ppt=presentation
pr=pull+request pref=preference prefs=preference prev=previous proc=process prod=production proj=project
prs=pull+request pt=point pub=publish pw=password pwd=password py=python qry=query qs=question qty=quantity
rcpt=receipt rd=read rec=record recs=record ref=reference refs=reference reg=register rel=relation rels=relation
repo=repository repos=repository req=request res=resource resp=response rev=revision rm=remove rnd=random
rpt=report rpts=report rtrv=retrieve sched=schedule scr=screen sec=second sel=select sess=session sig=signature
sms=message snap=screenshot spec=specification sql=query src=source srch=search srv=server ss=screenshot
stat=status stats=statistics std=standard str=string sub=subscription subs=subscription svc=service svcs=service
sync=synchronize sys=system tbl=table tbls=table tel=telephone tix=ticket tkt=ticket tkts=ticket tm=time
tmp=temporary tmpl=template tmr=tomorrow tmrw=tomorrow trans=translate ts=typescript txn=transaction tz=timezone
ul=upload upd=update usr=user usrs=user util=utility val=value vals=value var=variable vars=variable vc=video
ver=version vid=video vids=video vis=visible vm=machine vol=volume wf=workflow wk=week wkly=weekly wr=write
ws=workspace xfer=transfer xls=excel yday=yesterday yr=year
folder=directory folders=directory mail=email mails=email photo=image photos=image subfolder=directory
subfolders=directory webpage=page webpages=page website=site websites=site
"""
SPELLINGS = {word: meant.replace("+", " ") for word, _, meant in (one.partition("=") for one in _SPELLINGS.split())}
"""What is often written for a word, or for two, and is not merely how it begins."""


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Words by a word that means about the same, or leads to them."""
    found: dict[str, dict[str, None]] = {}
    for line in _SYNONYMS.split("\n"):
        group = line.split()
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(other for other in group if other != word))
    for word, others in associations():
        found.setdefault(word, {}).update(dict.fromkeys(other for other in others if other != word))
    return {word: tuple(others) for word, others in found.items()}
