//! Writes the nopal note of a probe, once for each object file and, as a comdat group, once for each linked file.
//!
//! The assembler takes numbers of at most 16 bytes, so that a note is many of them. They are operands of functions here, which
//! the compiler checks once, and not of the macros, where each probe of a program would have hundreds to check.

use crate::note::Described;
use core::arch::asm;

macro_rules! writer {
    ($(#[$about:meta])* $size:ident $max:literal $(($word:ident $index:literal))*) => {
        $(#[$about])*
        #[inline(always)]
        #[allow(named_asm_labels)]
        pub fn $size<D: Described>() {
            // SAFETY: no code; the text only fills a section that the program does not look at. `R` keeps it where the linker
            // drops what nothing refers to. Labels and group go by a number: no text can be an operand.
            unsafe {
                asm!(
                    ".ifndef .Lnopal_about.{id}",
                    ".pushsection .note.nopal, \"GR\", %note, nopal.{id}, comdat",
                    ".balign 4",
                    ".Lnopal_about.{id}:",
                    ".long 6, {len}, 1",
                    ".asciz \"nopal\"",
                    ".balign 4",
                    $(concat!(".if {words} > ", $index, "\n.octa {", stringify!($word), "}\n.endif"),)*
                    ".if {tails} > 0\n.long {tail0}\n.endif",
                    ".if {tails} > 1\n.long {tail1}\n.endif",
                    ".if {tails} > 2\n.long {tail2}\n.endif",
                    ".if {tails} > 3\n.long {tail3}\n.endif",
                    ".popsection",
                    ".endif",
                    $($word = const D::NOTE.word($index),)*
                    id = const D::NOTE.id(),
                    len = const D::NOTE.n_bytes(),
                    words = const D::NOTE.n_words($max),
                    tails = const D::NOTE.n_tail(),
                    tail0 = const D::NOTE.tail(0),
                    tail1 = const D::NOTE.tail(1),
                    tail2 = const D::NOTE.tail(2),
                    tail3 = const D::NOTE.tail(3),
                    options(nomem, nostack, preserves_flags)
                )
            }
        }
    };
}

writer! {
    /// Of a probe that is fired without a declaration.
    short 48
        (w0 0) (w1 1) (w2 2) (w3 3) (w4 4) (w5 5) (w6 6) (w7 7) (w8 8) (w9 9) (w10 10) (w11 11) (w12 12)
        (w13 13) (w14 14) (w15 15) (w16 16) (w17 17) (w18 18) (w19 19) (w20 20) (w21 21) (w22 22) (w23 23)
        (w24 24) (w25 25) (w26 26) (w27 27) (w28 28) (w29 29) (w30 30) (w31 31) (w32 32) (w33 33) (w34 34)
        (w35 35) (w36 36) (w37 37) (w38 38) (w39 39) (w40 40) (w41 41) (w42 42) (w43 43) (w44 44) (w45 45)
        (w46 46) (w47 47)
}

writer! {
    /// Of a declared probe, with its docs.
    long 192
        (w0 0) (w1 1) (w2 2) (w3 3) (w4 4) (w5 5) (w6 6) (w7 7) (w8 8) (w9 9) (w10 10) (w11 11) (w12 12)
        (w13 13) (w14 14) (w15 15) (w16 16) (w17 17) (w18 18) (w19 19) (w20 20) (w21 21) (w22 22) (w23 23)
        (w24 24) (w25 25) (w26 26) (w27 27) (w28 28) (w29 29) (w30 30) (w31 31) (w32 32) (w33 33) (w34 34)
        (w35 35) (w36 36) (w37 37) (w38 38) (w39 39) (w40 40) (w41 41) (w42 42) (w43 43) (w44 44) (w45 45)
        (w46 46) (w47 47) (w48 48) (w49 49) (w50 50) (w51 51) (w52 52) (w53 53) (w54 54) (w55 55) (w56 56)
        (w57 57) (w58 58) (w59 59) (w60 60) (w61 61) (w62 62) (w63 63) (w64 64) (w65 65) (w66 66) (w67 67)
        (w68 68) (w69 69) (w70 70) (w71 71) (w72 72) (w73 73) (w74 74) (w75 75) (w76 76) (w77 77) (w78 78)
        (w79 79) (w80 80) (w81 81) (w82 82) (w83 83) (w84 84) (w85 85) (w86 86) (w87 87) (w88 88) (w89 89)
        (w90 90) (w91 91) (w92 92) (w93 93) (w94 94) (w95 95) (w96 96) (w97 97) (w98 98) (w99 99) (w100 100)
        (w101 101) (w102 102) (w103 103) (w104 104) (w105 105) (w106 106) (w107 107) (w108 108) (w109 109)
        (w110 110) (w111 111) (w112 112) (w113 113) (w114 114) (w115 115) (w116 116) (w117 117) (w118 118)
        (w119 119) (w120 120) (w121 121) (w122 122) (w123 123) (w124 124) (w125 125) (w126 126) (w127 127)
        (w128 128) (w129 129) (w130 130) (w131 131) (w132 132) (w133 133) (w134 134) (w135 135) (w136 136)
        (w137 137) (w138 138) (w139 139) (w140 140) (w141 141) (w142 142) (w143 143) (w144 144) (w145 145)
        (w146 146) (w147 147) (w148 148) (w149 149) (w150 150) (w151 151) (w152 152) (w153 153) (w154 154)
        (w155 155) (w156 156) (w157 157) (w158 158) (w159 159) (w160 160) (w161 161) (w162 162) (w163 163)
        (w164 164) (w165 165) (w166 166) (w167 167) (w168 168) (w169 169) (w170 170) (w171 171) (w172 172)
        (w173 173) (w174 174) (w175 175) (w176 176) (w177 177) (w178 178) (w179 179) (w180 180) (w181 181)
        (w182 182) (w183 183) (w184 184) (w185 185) (w186 186) (w187 187) (w188 188) (w189 189) (w190 190)
        (w191 191)
}
