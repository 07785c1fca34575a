"""Words that mean about the same, other ways to write a word, and the commonest words in other languages. Data."""

from __future__ import annotations

from functools import cache

_STOP_WORDS = """
a about all am an and any are as at be been but by can could did do does for from had has have how i if in into is
it its just let like may me might my need of on onto or our out please shall should so some than that the their
them then there these they this those to us using want was we were what when where which who whose why will with
would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that say nothing of what a tool does. A query of nothing else keeps them."""

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
dropdown option select
previous back
current now present
recent latest last
"""

SPELLINGS = {
    "api": "interface",
    "app": "application",
    "attr": "attribute",
    "auth": "authentication",
    "calc": "calculate",
    "cfg": "configuration",
    "cmd": "command",
    "config": "configuration",
    "conv": "conversation",
    "cw": "cloudwatch",
    "db": "database",
    "del": "delete",
    "desc": "description",
    "diff": "difference",
    "dir": "directory",
    "dirs": "directory",
    "doc": "document",
    "docs": "document",
    "dup": "duplicate",
    "env": "environment",
    "eval": "evaluate",
    "exec": "execute",
    "gh": "github",
    "gl": "gitlab",
    "img": "image",
    "info": "information",
    "js": "javascript",
    "k8s": "kubernetes",
    "loc": "location",
    "ls": "list",
    "mgmt": "management",
    "mkdir": "create directory",
    "mr": "merge request",
    "mrs": "merge request",
    "msg": "message",
    "mv": "move",
    "notif": "notification",
    "num": "number",
    "org": "organization",
    "perm": "permission",
    "pic": "picture",
    "pr": "pull request",
    "prs": "pull request",
    "py": "python",
    "repo": "repository",
    "repos": "repository",
    "req": "request",
    "rm": "remove",
    "sql": "query",
    "sub": "subscription",
    "sync": "synchronize",
    "tmp": "temporary",
    "ts": "typescript",
    "txn": "transaction",
    "tz": "timezone",
    "usr": "user",
    "vm": "machine",
}
"""What is often written for a word, or for two, and is not merely how it begins."""

_TRANSLATIONS = """
account: 账户 账号 アカウント cuenta conta compte konto
add: agregar anadir adicionar ajouter hinzufugen aggiungere 添加 追加
book: reservar reserver buchen prenotare 预订 预约 予約
branch: rama ramo branche zweig 分支 ブランチ
browser: navegador navigateur 浏览器 ブラウザ
calendar: calendario kalender calendrier 日历 カレンダー
cancel: cancelar annuler abbrechen stornieren annullare 取消 キャンセル
channel: canal kanal canale 频道 チャンネル
click: clic klicken 点击 クリック
close: cerrar fechar fermer schliessen chiudere 关闭 閉じる
code: codigo codice quellcode 代码 コード
comment: comentario commentaire kommentar commento 评论 コメント
commit: 提交 コミット
compare: comparar comparer vergleichen confrontare 比较 比較
contact: contacto contato kontakt contatto 联系人 連絡先
convert: convertir converter konvertieren umrechnen 转换 変換
copy: copiar copier kopieren copiare 复制 コピー
create: crear criar creer erstellen anlegen creare crea 创建 新建 建立 作成
customer: cliente kunde 客户 顧客
data: datos dados donnees daten dati 数据 データ
database: datenbank 数据库 データベース
delete: eliminar borrar excluir apagar supprimer loschen eliminare 删除 削除
directory: carpeta pasta directorio dossier repertoire ordner verzeichnis cartella 目录 文件夹 フォルダ ディレクトリ
document: documento dokument 文档 文書 ドキュメント
download: descargar baixar telecharger herunterladen scaricare 下载 ダウンロード
edit: editar bearbeiten modificare 编辑 編集
email: correo courriel nachricht posta 邮件 メール
error: fehler erreur errore 错误 エラー
event: evento evenement ereignis termin 事件 活动 イベント 予定
export: exportar exporter exportieren esportare 导出 エクスポート
file: archivo arquivo fichier fichiers datei dateien 文件 ファイル
get: obtener obter obtenir holen abrufen ottenere 获取 取得
history: historial historico historique verlauf cronologia 历史 履歴
image: imagen imagem bild immagine 图片 图像 画像
import: importar importer importieren importare 导入 インポート
invoice: factura fatura facture rechnung fattura 发票 請求書
issue: incidencia probleme vorgang 问题 课题 問題 課題
link: enlace lien verknupfung 链接 リンク
list: listar lister auflisten elencare 列出 列表 一覧
log: registro protokoll 日志 ログ
map: mapa carte karte mappa 地图 地図
meeting: reunion reuniao besprechung riunione 会议 会議
merge: fusionar mesclar fusionner zusammenfuhren unire 合并 マージ
message: mensaje mensagem 消息 メッセージ
move: mover deplacer verschieben spostare 移动 移動
name: nombre nome nom 名称 名前
note: nota notiz 笔记 备注 メモ
open: abrir ouvrir offnen aprire 打开 開く
order: pedido commande bestellung ordine 订单 注文
page: pagina seite 页面 网页 ページ
password: contrasena senha passwort 密码 パスワード
payment: pago pagamento paiement zahlung 支付 付款 支払い
price: precio preco prix preis prezzo 价格 価格
product: producto produto produit produkt prodotto 产品 商品 製品
project: proyecto projeto projet projekt progetto 项目 プロジェクト
query: consulta requete abfrage 查询 クエリ
read: leer ler lire lesen leggere 读取 阅读 読む 読み
relation: relacion relacao beziehung relazione 关系 関係
rename: renombrar renomear renommer umbenennen rinominare 重命名 名前変更
report: informe relatorio rapport bericht 报告 レポート
repository: repositorio repositorios depot 仓库 存储库 リポジトリ
request: solicitud pedido demande anfrage richiesta 请求 リクエスト
review: revision revisao 审查 レビュー
route: ruta rota itineraire strecke percorso 路线 ルート
run: ejecutar executar executer ausfuhren eseguire 运行 执行 実行
save: guardar salvar enregistrer speichern salvare 保存
schedule: programar agendar planen programmare 安排 スケジュール
screenshot: captura bildschirmfoto schermata 截图 スクリーンショット
search: buscar busca pesquisar rechercher chercher suchen suche cercare cerca 搜索 查找 查询 検索
send: enviar envoyer senden inviare 发送 送信 送る
server: servidor serveur 服务器 サーバー
share: compartir compartilhar partager teilen condividere 分享 共享 共有
show: mostrar afficher anzeigen zeigen mostrare 显示 表示
size: tamano tamanho taille grosse dimensione 大小 サイズ
start: iniciar demarrer starten avviare 启动 开始 開始
status: estado etat zustand stato 状态 状態 ステータス
stop: detener parar arreter stoppen anhalten fermare 停止
summarize: resumir resumer zusammenfassen riassumere 总结 摘要 要約
table: tabla tabela tabelle tabella 表格 テーブル
task: tarea tarefa tache aufgabe compito 任务 タスク
team: equipo equipe mannschaft squadra 团队 チーム
test: prueba teste 测试 テスト
text: texto texte testo 文本 テキスト
time: hora tiempo tempo heure zeit uhrzeit 时间 時間 時刻
translate: traducir traduzir traduire ubersetzen tradurre 翻译 翻訳
update: actualizar atualizar mettre aktualisieren aggiornare 更新
upload: subir carregar televerser hochladen caricare 上传 アップロード
user: usuario usuarios utilisateur benutzer utente utenti 用户 ユーザー
video: 视频 動画 ビデオ
weather: tempo clima meteo wetter 天气 天気
web: 网络 网站 网页 ウェブ
write: escribir escrever ecrire schreiben scrivere 写入 書く
"""

LONGEST_UNSPACED = 10


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Words by a word that means about the same, in this language or another."""
    found: dict[str, dict[str, None]] = {}
    for line in _SYNONYMS.split("\n"):
        group = line.split()
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(other for other in group if other != word))
    for line in _TRANSLATIONS.strip().split("\n"):
        english, others = line.split(": ")
        for word in others.split():
            found.setdefault(word, {}).setdefault(english)
    return {word: tuple(others) for word, others in found.items()}
