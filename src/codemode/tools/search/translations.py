"""The commonest words of tasks in other languages, each line behind the English that a tool would have. Data.

A word stands here as it begins where its language changes its ends.
"""

from __future__ import annotations

from functools import cache

LONGEST = 10
"""Characters of a word that is written without spaces."""

SILENT = frozenset(
    """
    一个 一下 一条 一封 这个 那个 这些 那些 这里 我的 我们 你的 他们 帮我 请问 什么 有什么 怎么 如何 为什么
    可以 能不能 需要 想要 我想 所有的 另一个 另外 里面 里有 上的 上有 关于 然后 并且 以及 自己 ください して
    する した です ます ですか ました たい している こと もの これ それ この その から まで について ため どの
    どこ なに 教えて ほしい したい
    """.split()  # noqa: SIM905 - a text is easier to read
)
"""Words in scripts without spaces that say nothing of what a tool does."""

_TRANSLATIONS = """
account: 账户 账号 アカウント cuenta conta compte konto 帐户 حساب аккаунт учетн 계정 บัญชี खाता
active: 正在触发 触发 发生 進行中
add: agregar anadir adicionar ajouter hinzufugen aggiungere 添加 追加 增加 加一条 加上 加一个 إضافة اضف добав
add: 추가 เพิ่ม जोड़
address: 地址 住所 アドレス عنوان адрес 주소 ที่อยู่ पता
alarm: 告警 警报 报警 闹钟 アラーム 警告 アラート إنذار тревог 알람
allowed: 允许 許可 许可
analyze: 分析 解析 تحليل анализ 분석 วิเคราะห์
answer: 回答 答え
article: 文章 記事 статья
attachment: 附件 添付 вложен 첨부
audio: 音频 录音 音声 аудио 오디오 เสียง
back: 返回 后退 回退 戻る 戻り 戻す назад 뒤로
board: 看板 ボード доск
book: reservar reserver buchen prenotare 预订 预约 予約 订 预定 訂 حجز заброниров 예약 จอง
branch: rama ramo branche zweig 分支 ブランチ ветк 브랜치
browser: navegador navigateur 浏览器 ブラウザ
button: 按钮 按键 ボタン زر кнопк 버튼 ปุ่ม
buy: 购买 买 購入 شراء купить 구매 ซื้อ
calculate: 计算 計算 حساب рассчит вычисл 계산 คํานวณ
calendar: calendario kalender calendrier 日历 カレンダー
camera: 相机 摄像头 カメラ
cancel: cancelar annuler abbrechen stornieren annullare 取消 キャンセル
cell: 单元格 セル
channel: canal kanal canale 频道 チャンネル قناة канал 채널
chart: 图表 图 グラフ チャート رسم график 차트 กราฟ
chat: 聊天 チャット чат 채팅
click: clic klicken 点击 クリック 单击 点一下 点开 タップ انقر нажать нажми 클릭 คลิก
close: cerrar fechar fermer schliessen chiudere 关闭 閉じる 关掉 关上 閉じて أغلق закры 닫기
code: codigo codice quellcode 代码 コード 源码 كود код 코드 โค้ด
column: 列 カラム столб
comment: comentario commentaire kommentar commento 评论 コメント
commit: 提交 コミット 提交记录 коммит 커밋
compare: comparar comparer vergleichen confrontare 比较 比較 对比 比べる сравн 비교
compress: 压缩 圧縮 сжать 압축
contact: contacto contato kontakt contatto 联系人 連絡先 通讯录 контакт 연락처
container: 容器 コンテナ контеинер 컨테이너
content: 内容 中身 محتوى содержим 내용 เนื้อหา
convert: convertir converter konvertieren umrechnen 转换 変換 转成 换算 变成 تحويل преобраз конверт 변환 แปลง
coordinates: 坐标 经纬度 座標
copy: copiar copier kopieren copiare 复制 コピー 拷贝 複製 نسخ копи 복사 คัดลอก
count: 多少 几个 数量 件数 عدد сколько 개수
create: crear criar creer erstellen anlegen creare crea 创建 新建 建立 作成 建一个 新增 开个 做一个 作る 作って
create: إنشاء انشئ созда 생성 만들 สร้าง बना
currency: 货币 汇率 通貨 為替 عملة валют 환율
current: 现在 当前 目前 今 現在 الآن сеичас текущ 지금 현재 ตอนนี้
customer: cliente kunde 客户 顧客 顾客 клиент 고객
data: datos dados donnees daten dati 数据 データ
database: datenbank 数据库 データベース قاعدة бд базе 데이터베이스 ฐานข้อมูล
date: 日期 几号 日付 تاريخ дата 날짜 วันที่
delete: eliminar borrar excluir apagar supprimer loschen eliminare 删除 削除 删掉 去掉 移除 清除 消す 消して حذف
delete: احذف удал 삭제 ลบ हटा
deploy: 部署 デプロイ разверн 배포
describe: 说明 結構 構造 описа
diagram: 流程图 図
difference: 差异 区别 差分 разниц
directory: carpeta pasta directorio dossier repertoire ordner verzeichnis cartella 目录 文件夹 フォルダ
directory: ディレクトリ フォルダー 資料夾 مجلد папк каталог 폴더 โฟลเดอร์ फ़ोल्डर
distance: 距离 距離
document: documento dokument 文档 文書 ドキュメント مستند документ 문서 เอกสาร
download: descargar baixar telecharger herunterladen scaricare 下载 ダウンロード تنزيل скача 다운로드 ดาวน์โหลด
drag: 拖动 拖拽 ドラッグ перетащ
dropdown: 下拉 ドロップダウン
edit: editar bearbeiten modificare 编辑 編集 修改 改一下 改成 書き換え 直す تعديل редактир 수정 แก้ไข
email: correo courriel nachricht posta 邮件 メール 邮箱 بريد письм почт 이메일 อีเมล ईमेल
entity: 实体 エンティティ сущност
error: fehler erreur errore 错误 エラー 报错 出错 故障 异常 障害 خطأ ошибк 오류 ข้อผิดพลาด
event: evento evenement ereignis termin 事件 活动 イベント 予定 日程 行事 حدث событи 이벤트 일정
expense: 费用 经费 経費
export: exportar exporter exportieren esportare 导出 エクスポート
extract: 提取 抽取 抽出 извле 추출
file: archivo arquivo fichier fichiers datei dateien 文件 ファイル 档案 ملف фаил 파일 ไฟล์ फ़ाइल
fill: 填写 填 記入 заполн
flight: 航班 机票 飛行機 フライト реис 항공편
font: 字体 フォント
food: 吃什么 美食 菜 料理 食べ
fork: 分叉 复刻 フォーク форк 포크
form: 表单 フォーム форм
friend: 好友 朋友 友達
game: 游戏 ゲーム игр
get: obtener obter obtenir holen abrufen ottenere 获取 取得
group: 群组 群 分组 グループ групп 그룹
history: historial historico historique verlauf cronologia 历史 履歴
hotel: 酒店 宾馆 ホテル 宿 فندق отел гостиниц 호텔 โรงแรม
hover: 悬停 ホバー
image: imagen imagem bild immagine 图片 图像 画像 照片 写真 イラスト صورة изображен картин 이미지 사진 รูป रूप
import: importar importer importieren importare 导入 インポート
index: 索引 インデックス индекс
information: 信息 資訊 情報 معلومات информац 정보 ข้อมูล जानकारी
insert: 插入 挿入 встав 삽입
invite: 邀请 招待 приглас
invoice: factura fatura facture rechnung fattura 发票 請求書
issue: incidencia probleme vorgang 问题 课题 問題 課題 工单 缺陷 バグ 不具合 チケット проблем 이슈
key: 密钥 キー
knowledge: 知识 知識 ナレッジ знани
label: 标签 ラベル метк
language: 语言 言語
latest: 最新 最近 последн
link: enlace lien verknupfung 链接 リンク رابط ссылк 링크
list: listar lister auflisten elencare 列出 列表 一覧 列举 有哪些 哪些 全部 所有 清单 リスト 全部見せて 一覧表示
list: قائمة список 목록 รายการ सूची
location: 位置 地点 場所 موقع местополож 위치
log: registro protokoll 日志 ログ журнал лог 로그
login: 登录 登陆 ログイン サインイン воити вход 로그인
map: mapa carte karte mappa 地图 地図 خريطة карт 지도 แผนที่
meeting: reunion reuniao besprechung riunione 会议 会議 开会 ミーティング اجتماع встреч собран 회의 ประชุม
member: 成员 队友 メンバー участник
memory: 记忆 内存 記憶 メモリ памят
merge: fusionar mesclar fusionner zusammenfuhren unire 合并 マージ 合到 объедин 병합
message: mensaje mensagem 消息 メッセージ 留言 短信 コメント رسالة сообщен 메시지 ข้อความ संदेश
metric: 指标 メトリクス метрик
model: 模型 モデル
money: 钱 お金
monitor: 监控 監視
move: mover deplacer verschieben spostare 移动 移動 移到 挪到 移す نقل перемест 이동 ย้าย
movie: 电影 映画
music: 音乐 歌曲 歌 音楽 曲 музык
name: nombre nome nom 名称 名前 名字 اسم имя 이름
nearby: 附近 周边 近く 周辺 рядом
news: 新闻 消息 资讯 ニュース أخبار новост 뉴스 ข่าว
note: nota notiz 笔记 备注 メモ 便签 ノート ملاحظ заметк 메모
notification: 通知 推送通知 お知らせ уведомлен 알림
observation: 观察 観察
open: abrir ouvrir offnen aprire 打开 開く 开启 進入 开一下 開いて افتح откр 열기 เปิด खोल
order: pedido commande bestellung ordine 订单 注文
package: 包 パッケージ пакет
page: pagina seite 页面 网页 ページ 頁 صفحة страниц 페이지 หน้า
paper: 论文 論文
password: contrasena senha passwort 密码 パスワード пароль 비밀번호
path: 路径 パス путь
pay: 付钱 결제 оплат
payment: pago pagamento paiement zahlung 支付 付款 支払い
permission: 权限 権限 прав
person: 人员 谁 誰 担当者 人 человек люд 사람
phone: 电话 手机 電話 携帯 телефон
play: 播放 再生
press: 按下 按一下 押す 押して
previous: 上一页 上一个 上一步 之前 前の 以前 предыдущ
price: precio preco prix preis prezzo 价格 価格
print: 打印 印刷 печат
process: 进程 プロセス процесс
product: producto produto produit produkt prodotto 产品 商品 製品 товар 상품
project: proyecto projeto projet projekt progetto 项目 プロジェクト проект 프로젝트 โครงการ
publish: 发布 发表 公開 投稿 опублик
pull request: 拉取请求 合并请求 プルリクエスト プルリク
push: 推送 プッシュ
query: consulta requete abfrage 查询 クエリ запрос 쿼리
question: 问 质问 質問 вопрос
random: 随机 ランダム случаин
read: leer ler lire lesen leggere 读取 阅读 読む 読み 看看 查看 查阅 看一下 見る 見たい 見て 見せて اقرأ قراءة
read: прочит чита 읽기 읽 อ่าน पढ़
recipe: 菜谱 食谱 做法 レシピ рецепт
record: 录制 记录一下 録画 録音 запис
refresh: 刷新 更新表示 обнов
relation: relacion relacao beziehung relazione 关系 関係
remember: 记住 记下 覚え
reminder: 提醒 リマインダー напомин
rename: renombrar renomear renommer umbenennen rinominare 重命名 名前変更 改名 改个名字 改一下名字 名前を変え
rename: リネーム переимен
reply: 回复 返信 ответ
report: informe relatorio rapport bericht 报告 レポート отчет 보고서
repository: repositorio repositorios depot 仓库 存储库 リポジトリ 代码库 代码仓 репозитор 저장소 리포지토리
request: solicitud pedido demande anfrage richiesta 请求 リクエスト
restaurant: 餐厅 饭店 餐馆 レストラン 店 ресторан 식당
resume: 简历 履歴書
review: revision revisao 审查 レビュー 评审 审阅 代码审查 査読
route: ruta rota itineraire strecke percorso 路线 ルート
row: 行
run: ejecutar executar executer ausfuhren eseguire 运行 执行 実行 跑一下 动かす تشغيل запуст выполн 실행
save: guardar salvar enregistrer speichern salvare 保存 存一下 存下来 保存して حفظ сохран 저장 บันทึก
schedule: programar agendar planen programmare 安排 スケジュール
schema: 结构 スキーマ схем
screenshot: captura bildschirmfoto schermata 截图 スクリーンショット 截屏 截个屏 截个图 屏幕截图 スクショ
screenshot: キャプチャ لقطة скриншот снимок 스크린샷 캡처
script: 脚本 スクリプト скрипт
scroll: 滚动 スクロール прокрут
search: buscar busca pesquisar rechercher chercher suchen suche cercare cerca 搜索 查找 查询 検索 找 找到 找一下
search: 搜 搜一下 查一下 探す 探して 調べる 調べて ابحث بحث поиск наити наид искать 검색 찾 ค้นหา खोज
select: 选择 选中 选 選ぶ 選択 выбр 선택
send: enviar envoyer senden inviare 发送 送信 送る 发给 发一封 发条 发个 送って أرسل إرسال отправ 보내 전송 ส่ง
send: भेज
server: servidor serveur 服务器 サーバー сервер 서버
settings: 设置 配置 設定 настроик 설정
share: compartir compartilhar partager teilen condividere 分享 共享 共有 поделит 공유
sheet: 工作表 电子表格 シート スプレッドシート таблиц
show: mostrar afficher anzeigen zeigen mostrare 显示 表示 看 見せる показ покаж 보여 แสดง दिखा
size: tamano tamanho taille grosse dimensione 大小 サイズ
slide: 幻灯片 スライド ppt слаид 슬라이드
song: 歌
stage: 暂存 ステージ
start: iniciar demarrer starten avviare 启动 开始 開始 начать 시작 เริ่ม
status: estado etat zustand stato 状态 状態 ステータス
stock: 股票 股价 库存 株価 株 在庫 акци 주식 หุ้น
stop: detener parar arreter stoppen anhalten fermare 停止 остано 중지 หยุด
subscribe: 订阅 購読
summarize: resumir resumer zusammenfassen riassumere 总结 摘要 要約
switch: 切换 切换到 換到 切り替え перекл 전환
tab: 标签页 选项卡 タブ вкладк
table: tabla tabela tabelle tabella 表格 テーブル 表 有哪些表 数据表 таблиц 테이블 ตาราง
tag: 标记 タグ тег
task: tarea tarefa tache aufgabe compito 任务 タスク 待办 任务单 やること مهمة задач 작업 할일 งาน कार्य
team: equipo equipe mannschaft squadra 团队 チーム команд 팀 ทีม
test: prueba teste 测试 テスト
text: texto texte testo 文本 テキスト نص текст 텍스트
time: hora tiempo tempo heure zeit uhrzeit 时间 時間 時刻 几点 几点了 何時 وقت время 시간 เวลา समय
timezone: 时区 タイムゾーン
title: 标题 タイトル 件名
track: 追踪 跟踪 追跡
train: 火车 高铁 列车 電車 新幹線 поезд 기차
transfer: 转账 振込 перевод
translate: traducir traduzir traduire ubersetzen tradurre 翻译 翻訳 ترجم перевод перевед 번역 แปล अनुवाद
tree: 树 ツリー
type: 输入 键入 入力 打ち込 введ 입력 พิมพ์
undo: 撤销 撤回 取り消 отмен
unread: 未读 未読
update: actualizar atualizar mettre aktualisieren aggiornare 更新
upload: subir carregar televerser hochladen caricare 上传 アップロード رفع загруз 업로드 อัปโหลด
user: usuario usuarios utilisateur benutzer utente utenti 用户 ユーザー 用户名 مستخدم пользовател 사용자 ผู้ใช้
user: उपयोगकर्ता
version: 版本 バージョン верси 버전
video: 视频 動画 ビデオ فيديو видео 비디오 동영상 วิดีโอ
visit: 访问 浏览 アクセス
wait: 等待 等到 等一下 待つ 待って ждать подожд 대기
weather: tempo clima meteo wetter 天气 天気 下雨 气温 雨 طقس погод 날씨 อากาศ मौसम
web: 网络 网站 网页 ウェブ 网上 互联网 上网 ネット インターネット интернет 웹 인터넷
website: 网址 サイト موقع саит 웹사이트 เว็บไซต์
window: 窗口 ウィンドウ окн
word: 单词 単語 слов
write: escribir escrever ecrire schreiben scrivere 写入 書く 写 写一个 写一封 書いて اكتب напис 쓰기 เขียน लिख
"""


@cache
def translations() -> dict[str, tuple[str, ...]]:
    """English words by a word that means about the same in another language."""
    found: dict[str, dict[str, None]] = {}
    for line in _TRANSLATIONS.strip().split("\n"):
        english, others = line.split(": ")
        for word in others.split():
            found.setdefault(word, {}).setdefault(english)
    return {word: tuple(english) for word, english in found.items()}
