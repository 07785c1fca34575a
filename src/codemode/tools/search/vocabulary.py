"""Synonyms, abbreviations and stop words of tool searches."""

from __future__ import annotations

from functools import cache

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
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words without meaning for a search. A query of these only keeps them."""

GENERIC_VERBS = frozenset(
    """
    add append build call change check close copy create delete describe do edit execute export fetch find generate get
    give go import insert inspect list load look make manage modify move new open perform print process put query read
    remove rename replace retrieve run save search see select send set show start stop store switch take update upload
    use view write
    """.split()  # noqa: SIM905 - a text is easier to read
)
"""Verbs that say little about a tool."""

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

_ABBREVIATIONS = """
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
ABBREVIATIONS = {
    word: meant.replace("+", " ") for word, _, meant in (entry.partition("=") for entry in _ABBREVIATIONS.split())
}
"""Words for common abbreviations that are not prefixes."""


@cache
def get_synonyms() -> dict[str, tuple[str, ...]]:
    """Return synonyms by word."""
    found: dict[str, dict[str, None]] = {}
    for line in _SYNONYMS.split("\n"):
        group = line.split()
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(other for other in group if other != word))
    return {word: tuple(others) for word, others in found.items()}
